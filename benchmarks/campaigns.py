"""Put what campaigns of fault injection found into results/faults.json, and print it as the rows of the pages.

riprap inject bargain --campaign paper
riprap inject bargain --campaign real --feed TradesAndQuotes.csv.gz
python benchmarks/campaigns.py paper=campaigns/bargain/paper-... real=campaigns/bargain/real-...
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from riprap.faults.folder import CampaignFolder

RESULT = Path(__file__).parent / "results" / "faults.json"
KEPT = (
    *("C", "C_interval", "D", "anova", "anova_p", "R", "R_interval", "I", "I_interval", "by_outage"),
    *("verdict", "unpredictable", "score_notices"),
)
TOTALS = ("trials", "golden", "rows", "sections", "replayed", "took", "streaming", "warnings")


def found_by(folder: CampaignFolder) -> dict[str, Any]:
    """Return what is worth keeping of a campaign that is done."""
    result = folder.result
    if result is None:
        raise SystemExit(f"the campaign in {folder.path} is not done: give its command again")
    models: dict[str, dict[str, Any]] = {}
    for each in result["operators"]:
        models.setdefault(each["model"], {})["+".join(each["targets"])] = {name: each[name] for name in KEPT}
    campaign = folder.about["campaign"]
    return {
        "offsets": campaign["offsets"],
        "outages": result["outages"],
        "interleave": campaign["interleave"],
        "models": models,
        **{name: result[name] for name in TOTALS},
    }


def row(name: str, told: dict[str, Any]) -> str:
    """Return the row of an operator: C, D, R and I as the page has them."""
    letter = {"accept": "A", "reject": "R"}.get(told["anova"], told["anova"])
    return f"| {name} | {told['C']:.2f} | {told['D']:.2f}, {letter} | {told['R']} | {told['I']:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("campaigns", nargs="+", metavar="NAME=FOLDER")
    told = json.loads(RESULT.read_text())
    for each in parser.parse_args().campaigns:
        name, _, folder = each.partition("=")
        told["campaigns"][name] = found_by(CampaignFolder(Path(folder)))
        for model, operators in told["campaigns"][name]["models"].items():
            print(f"\n{name}, {model}")
            for operator, metrics in operators.items():
                print(row(operator, metrics))
                for at in metrics["by_outage"]:
                    print("   ", at["outage"], at["R_at"], [round(i, 2) for i in at["I_at"]])
    RESULT.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
