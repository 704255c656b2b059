"""The geometry of the plots: records of places in pixels, which templates/_plots.html.j2 draws as SVG."""
