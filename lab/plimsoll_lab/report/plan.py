"""A plan in the terminal, before anything runs."""

from __future__ import annotations

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.scale import ScaleEstimate
from plimsoll_lab.report.warning_lines import warning_lines
from plimsoll_lab.store.plan_record import PlanSummary


def render_plan(plan: PlanSummary, *, colour: bool) -> str:
    """The plan in words."""
    family = plan.family
    what = "trials" if plan.search is None else "searches"
    count = f"{len(plan.points)} points x {plan.repeat} repetitions = {len(plan.trials)} {what}"
    lasting = formatting.duration(plan.predicted_s)
    if plan.search is not None:
        most_s = plan.search.patience_s * len(plan.trials)
        most = formatting.elapsed(most_s)
        lasting = f"{lasting} or more, up to {most}" if plan.predicted_s < most_s else f"up to {most}"
        lasting += ": trials become as long as "
        lasting += f"bounds {formatting.percent(plan.search.width)} apart ask for (a greater width is quicker)"
    lines = [plan.question, "", f"{count}, {lasting}, seed {plan.seed}"]
    axes: dict[str, dict[str, None]] = {}
    for point in plan.points:
        for path, value in point.point.items():
            axes.setdefault(path, {})[formatting.value(value)] = None
    width = max((len(path) for path in axes), default=0)
    lines += [f"  {path.ljust(width)}  {', '.join(values)}" for path, values in axes.items()]
    if family.comparisons:
        lines += [
            "",
            f"one family of {family.comparisons} comparisons along {family.compare}: {', '.join(family.figures)}",
            f"a difference can be shown with {family.repetitions_needed} repetitions or more",
        ]
    if family.detectable is not None and family.detectable.difference is not None:
        shown, noise = formatting.percent(family.detectable.difference), formatting.percent(family.detectable.noise, 0)
        lines.append(
            f"with {plan.repeat}, a difference of {shown} is shown in four of five runs, "
            f"if a figure varies by {noise} from repetition to repetition"
        )
    for line in warning_lines(plan.warnings, colour=colour):
        lines += ["", line]
    return "\n".join(lines)


def render_scale(scale: ScaleEstimate, run: str) -> str:
    """How many generators a target needs by what those of a run used, and why."""
    needs, measured, host = scale.needs, scale.measured, scale.host
    return (
        f"\n{scale.connections:,} connections and {scale.rate:,.0f} requests/s need {scale.generators} "
        f"generators on hosts of {host.cpus} CPUs and {host.memory_bytes / 2**30:.0f} GiB:\n"
        f"  {needs['cpu']} for their CPU: {measured.cpu_us_per_request:.2f} us per request, as measured in {run} at "
        f"{measured.rate_per_generator:,.0f} requests/s a generator\n"
        f"  {needs['memory']} for their memory: {measured.bytes_each:.0f} bytes per connection and the kernel's\n"
        f"  {needs['ports']} for their ports: {host.ports:,} to one address of the server, from one of theirs"
    )
