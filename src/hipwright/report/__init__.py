"""Self-contained HTML pages: of a run, a benchmark, a data set, a training (docs/design.md).

Each page is a group of modules: NAME_page.py renders templates/NAME.html.j2, NAME_plots.py computes the geometry of its
plots, NAME_views.py its words and tables, NAME_data.py its data. A new plot is a function in NAME_plots.py that returns
a frozen record, a line in NAME_page.py that passes it, and the SVG in the template. Shared: html.py, formatting.py,
ticks.py.
"""

from hipwright.report.run_data import ReportData, from_run, split
from hipwright.report.run_page import render

__all__ = ["ReportData", "from_run", "render", "split"]
