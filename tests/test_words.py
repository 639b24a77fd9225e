"""One name, one meaning: a type's name is defined in one module."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "riprap"
SEVERAL = {
    "Mean": "a score of fault injection, and a reward of nets: campaigns and errors name both",
    "Sink": "the operator, and the class that users' connectors derive from",
    "Source": "the operator, and the class that users' connectors derive from",
    "Split": "the operator, and the class by which an application that comes with Riprap splits lines into words",
}


def test_a_type_has_a_name_of_its_own() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        made = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        made += [
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
            and target.id.lstrip("_")[:1].isupper()
            and not target.id.isupper()
        ]
        for name in made:
            homes[name].append(str(file.relative_to(PACKAGE)))
    several = {name: files for name, files in homes.items() if len(files) > 1}
    assert several.keys() == SEVERAL.keys(), several
