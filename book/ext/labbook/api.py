"""`{labcore-module}`: documentation of one module of the package, as far as the module exists."""

from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from labbook.build import paragraph
from labbook.sources import ROOT


def setup(app):
    app.add_directive("labcore-module", Module)


class Module(SphinxDirective):
    """Everything that the module's `__all__` names, from its docstrings."""

    required_arguments = 1

    def run(self):
        name = self.arguments[0]
        stem = ROOT.joinpath(*name.split("."))
        if not stem.with_suffix(".py").exists() and not (stem / "__init__.py").exists():
            return [paragraph("This module is still to come.")]
        lines = ["```{eval-rst}", f".. automodule:: {name}", "   :members:", "```"]
        return self.parsed(lines)

    def parsed(self, lines):
        from docutils import nodes

        holder = nodes.container(classes=["api"])
        self.state.nested_parse(StringList(lines, source="api"), self.content_offset, holder)
        return [holder]
