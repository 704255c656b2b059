"""report.html of a run: verdict, figures, sources, verification, fusion and search on one page."""

from __future__ import annotations

from hipwright.report import html, run_plots, run_views
from hipwright.report.run_data import ReportData


def render(data: ReportData) -> str:
    """Renders the page."""
    page: str = (
        html.environment()
        .get_template("report.html.j2")
        .render(
            data=data,
            evaluation=data.evaluation,
            headline=run_views.headline(data),
            tiles=run_views.tiles(data),
            resources=run_views.resources(data.evaluation),
            verification=run_views.verification(data.evaluation),
            fusion=run_views.fusion(data.explanation),
            statuses=run_views.statuses(data.trials),
            score_plot=run_plots.score_plot(data.trials, data.gains),
            lineage=run_plots.lineage(data.trials),
            kind_of=run_plots.kind_of,
            code_css=html.code_css(),
        )
    )
    return page
