"""Builds the documentation as a site: `make site`, or python docs/site/pages.py FOLDER.

README.md, docs/*.md, ...          copied beside each other, so that their links hold   FOLDER/pages/
what they link to: code, figures   copied too; Python becomes a page                    FOLDER/pages/
docs/api/*.md                      the public names, from their docstrings              FOLDER/pages/docs/api/
                                   built by MkDocs, strictly                            FOLDER/site/index.html
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "docs/site/mkdocs.yml"
LINK = re.compile(r"(\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")

API: dict[str, tuple[str, ...]] = {
    "Partitioning": (
        "jit", "filter_jit", "partition", "PartitionedFunction", "FilteredFunction", "Lowered", "Compiled", "Mesh",
        "tag", "kernel", "verify_kernel", "load", "LoadedProgram", "Limits", "LoweringOptions", "ExpectedTrips",
    ),
    "Tactics": (
        "ManualPartition", "AutomaticPartition", "Parallelism", "Microbatch", "Pipeline", "Recompute", "Pad",
        "SharedGathers", "ShardedLoops", "Replay", "FIRST_DIVISIBLE_DIM", "LARGEST_DIVISIBLE_DIM", "REPLICATED",
        "UNKNOWN", "Tactic",
        "TacticContext", "TacticResult",
    ),
    "Metadata and plans": ("Metadata", "TacticReport", "Plan", "PlanDiff", "named_schedules", "sweep", "Sweep"),
    "Search": (
        "Budget", "MCTS", "ILP", "Hybrid", "Beam", "Greedy", "Annealing", "RandomSearch", "Exhaustive", "Optimizer",
        "optimizers", "Problem", "Job", "Cost", "StepSeconds", "Serial", "Processes", "Ray", "warmup",
    ),
    "Cost model": ("Device", "Estimate", "CostModel", "calibrate", "Calibration", "Profile"),
    "Redistribution": ("reshard", "redistribution_plan"),
    "Registering": (
        "register_rule", "register_custom_call", "register_optimizer", "register_executor", "register_cost_model",
        "register_decision_kind", "register_named_schedule", "register_device", "op_traits", "TileMapping",
    ),
    "Errors and warnings": (
        "PartitionError", "ArgumentError", "BlockedError", "CallError", "MeshError", "OptimizerError", "PlanError",
        "ProgramError", "RegistryError", "TileError", "UnknownNameError", "SearchWarning", "MutationWarning",
        "PassWarning", "ClosedOverWarning", "LayoutWarning",
    ),
}  # fmt: skip
"""Every public name once, under the title of its page."""


def file_name(title: str) -> str:
    """A page's file: its title in small letters."""
    return title.lower().replace(" ", "-") + ".md"


def sources() -> list[Path]:
    """The pages that are written by hand."""
    experiments = ROOT / "experiments"
    return sorted(
        [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *experiments.glob("*.md"), *experiments.glob("*/*.md")]
    )


def copy(page: Path, pages: Path) -> None:
    """Copies a page and the files that it links to; a link to Python leads to a page that shows it."""

    def followed(found: re.Match[str]) -> str:
        target = (page.parent / found[2]).resolve()
        if not target.is_file() or not target.is_relative_to(ROOT) or target.suffix == ".md":
            return found[0]
        at = pages / target.relative_to(ROOT)
        at.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix != ".py":
            shutil.copyfile(target, at)
            return found[0]
        at.with_suffix(".md").write_text(f"# {target.relative_to(ROOT)}\n\n````python\n{target.read_text()}````\n")
        return f"{found[1]}{found[2].removesuffix('.py')}.md{found[3]}"

    at = pages / page.relative_to(ROOT)
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text(LINK.sub(followed, page.read_text()))


def write_api(pages: Path) -> None:
    """A page per topic, and one that lists them."""
    folder = pages / "docs/api"
    folder.mkdir(parents=True, exist_ok=True)
    index = ["# API reference\n", "All public names; `import autopart as ap`.\n"]
    for title, names in API.items():
        blocks = [f"::: autopart.{name}\n" for name in names]
        (folder / file_name(title)).write_text("\n".join([f"# {title}\n", *blocks]))
        index.append(f"- [{title}]({file_name(title)}): {', '.join(f'`{name}`' for name in names)}")
    (folder / "README.md").write_text("\n".join(index) + "\n")


def main(folder: Path) -> int:
    """Copies, writes and builds; the exit code is that of MkDocs."""
    pages, site = folder / "pages", folder / "site"
    shutil.rmtree(pages, ignore_errors=True)
    for page in sources():
        copy(page, pages)
    write_api(pages)
    places = {"PAGES": str(pages), "SITE": str(site), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--clean", "--config-file", str(CONFIG)]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **places}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
