"""`hipwright view`: the archive as a local web application that only reads (docs/view.md).

serving    the server: one address, one token, one thread
app        the routes; access.py decides who may ask and sets the headers
live       server-sent events: a page is told that its run has changed, and asks for itself again
reader     the archive, with the logs of runs kept and continued
results    folders of benchmarks, audits and trainings beside the archive; KIND_results.py shows one or two of them
NAME_page  what a page shows, from records; templates/NAME.html.j2 lays it out
plots      the geometry of the plots, which the templates draw as SVG

Names, sources and messages come from task files and programs that are not trusted: templates escape every value
(hipwright.report.html), and the content security policy allows no script, style or request but the server's own files.
Needs starlette and uvicorn, which are imported by app.py and serving.py alone.
"""
