"""The report of a campaign: one HTML page that needs nothing else, and all trials as tables."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from riprap.drawing.pages import make_page, page_file
from riprap.errors import RunError
from riprap.faults.folder import CampaignFolder


def write_report(folder: CampaignFolder) -> dict[str, Path]:
    """Write the page and the tables into the folder of a campaign that is done; return where each is."""
    if folder.result is None:
        raise RunError(
            f"the campaign in {folder.path} is not done: give the command of 'riprap inject' again to go on"
        )
    files = {
        "report": folder.path / "report.html",
        "csv": folder.path / "trials.csv",
        "parquet": folder.path / "trials.parquet",
    }
    files["report"].write_text(page(folder), encoding="utf-8")
    trials = trials_table(folder)
    pa_csv.write_csv(trials, files["csv"])
    pq.write_table(trials, files["parquet"])
    return files


def page(folder: CampaignFolder) -> str:
    """Return the page."""
    about, result = folder.about, folder.result
    assert result is not None
    campaign = about["campaign"]
    drawing = folder.path / "graph.svg"
    body = Template(page_file("riprap.faults", "page.html")).substitute(
        notes="".join(f'<p class="note">{html.escape(note)}</p>\n' for note in result["warnings"]),
        advice="<ul>\n" + "".join(f"<li>{line}</li>\n" for line in advice(result)) + "</ul>",
        drawing=drawing.read_text(encoding="utf-8") if drawing.exists() else "",
        method="".join(f"<p>{html.escape(line)}</p>\n" for line in _method(about, result)),
    )
    return make_page(
        title=f"Faults in {about['application']}",
        subtitle=f"{result['trials']:,} trials and {result['golden']:,} golden runs over {result['rows']:,} tuples; "
        f"score: {campaign['score']['name']} at sink {campaign['sink']}, in sections of {campaign['section']:,} "
        f"{'positions' if campaign['by'] is None else 'of ' + campaign['by']}",
        body=body,
        told=_page_data(about, result),
        css=page_file("riprap.faults", "page.css"),
        js=page_file("riprap.faults", "page.js"),
    )


def advice(result: Mapping[str, Any]) -> Iterator[str]:
    """Say what to do next, as lines of HTML."""
    first = result["operators"][0]["model"]
    operators = [o for o in result["operators"] if o["model"] == first]
    sentences = {
        ("protect", True): "Protect {}: faults there outlast the outage in the output. Write "
        "<code>protect=rr.checkpoint(every='1s')</code> beside it, so that its state outlives its host, and run it "
        "with <code>restart='resume'</code> (the default of <code>app.place</code>), so that input of an outage is "
        "read later; the model <code>crash</code> of a campaign says what that leaves of the harm.",
        (
            "protect",
            False,
        ): "Protect the input of {}: faults there outlast the outage in the output, and it keeps no "
        "state that a checkpoint could save. Run it with <code>restart='resume'</code> (the default of "
        "<code>app.place</code>), so that input of an outage is read later, and with <code>riprap run "
        "--spare</code>, so that outages are short.",
        (
            "restart is enough",
            None,
        ): "Restart {}, and no more: the output is right again as soon as the outage is over.",
        ("no effect", None): "Leave {} alone: faults there do not show in this score.",
        ("unknown", None): "Look at {} first: trials there failed.",
    }
    for (verdict, stateful), sentence in sentences.items():
        names = [
            " + ".join(o["targets"])
            for o in operators
            if o["verdict"] == verdict and stateful in (None, o["stateful"])
        ]
        if names:
            yield sentence.format(", ".join(f"<b>{html.escape(name)}</b>" for name in names))
    chance = [" + ".join(o["targets"]) for o in operators if o["unpredictable"]]
    if chance:
        at = ", ".join(f"<b>{html.escape(name)}</b>" for name in chance)
        yield f"Count on the worst offset, not on the mean, at {at}: how bad it gets depends on the data hit."


def _method(about: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[str]:
    campaign = about["campaign"]
    yield (
        f"A trial replays only what a fault touches: {result['replayed']:,} tuples in all trials, of "
        f"{result['trials'] * result['rows']:,} if each were replayed whole. It took {result['took']:,.0f} s."
    )
    if result["streaming"] is not None:
        yield (
            f"Through the streaming runtime one run took {result['streaming']['seconds']:.1f} s (measured once), so "
            f"all of them would take about {result['streaming']['all'] / 3600:.1f} hours."
        )
    if campaign["interleave"] is not None:
        yield (
            f"Streams that meet lag by up to {campaign['interleave']} positions, in another way for each repetition "
            "and golden run; a faulty run and the golden one it is compared with lag alike."
        )
    yield (
        f"A section is wrong if its score is off by more than {campaign['threshold']:.0%}; R covers "
        f"{campaign['covered']:.0%} of the wrong sections. Small figures are 95% confidence intervals over "
        "repetitions, of C over offsets; those of C, R and I by bootstrap."
    )
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    yield f"Seed {campaign['seed']}. Versions: {versions}."


def _page_data(about: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page's figures are made of."""
    campaign = about["campaign"]
    return {
        "operators": result["operators"],
        "curves": result["curves"],
        "models": list(campaign["models"]),
        "offsets": campaign["offsets"],
        "outages": result["outages"],
        "stands_for": {
            model: {t["name"]: t["stands_for"] for t in about["targets"] if t["model"] == model}
            for model in campaign["models"]
        },
        "length": "tuples of the target"
        if campaign["tuples"] or campaign["clock"]
        else "tuples of the source",
    }


def trials_table(folder: CampaignFolder) -> pa.Table:
    """Return every trial as a row."""
    rows = []
    for trial in folder.trials():
        model, targets, offset, outage, repetition = trial.id.split("/")
        rows.append(
            {
                "trial": trial.id,
                "model": model,
                "targets": targets,
                "offset": int(offset),
                "outage": outage,
                "repetition": int(repetition),
                "affected_score": None if trial.error else trial.affected,
                "sections_changed": len(trial.sections),
                "begins": trial.begins,
                "ends": trial.ends,
                "tuples_hit": trial.lost,
                "tuples_replayed": trial.replayed,
                "seconds": trial.seconds,
                "error": trial.error,
            }
        )
    return pa.Table.from_pylist(rows)
