"""Settings of Sphinx for the documentation's site; `make.py` calls it."""

import latentgp

project = "latentgp"
author = "latentgp maintainers"
version = release = latentgp.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "linked"]
highlight_language = "none"
smartquotes = False  # values such as "auto" are copied

myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 88
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = "latentgp"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_show_copyright = False
