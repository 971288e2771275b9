"""Search that finds two-character Chinese terms and symbols as well as English words.

Chinese is indexed as single characters and pairs, formulas as `W_O`, `d_ff`, `√`; the splitter in
the browser (`search_splitter.js`) cuts a query in the same way.
"""

import re
import unicodedata
from pathlib import Path

from sphinx.search import languages
from sphinx.search.en import SearchEnglish

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
SYMBOLS = "√∑∏∂∇≤≥≈≠∈∉∞⊙⊗⊕·×→←⊤‖"
TOKEN = re.compile(rf"[{HAN}]+|[^\W{HAN}]+|[{SYMBOLS}]")
WRAPPER = re.compile(r"\\(?:text|mathrm|mathbf|boldsymbol|operatorname|mathcal)\{([^{}]*)\}")
GROUP = re.compile(r"([_^])\{(\w+)\}")
COMMANDS = {
    "sqrt": "√", "sum": "∑", "prod": "∏", "partial": "∂", "nabla": "∇", "odot": "⊙", "cdot": "·",
    "otimes": "⊗", "oplus": "⊕", "times": "×", "to": "→", "top": "⊤", "infty": "∞", "in": "∈",
    "le": "≤", "ge": "≥", "approx": "≈", "ne": "≠", "alpha": "α", "beta": "β", "gamma": "γ",
    "delta": "δ", "epsilon": "ε", "lambda": "λ", "mu": "μ", "sigma": "σ", "tau": "τ", "theta": "θ",
    "omega": "ω", "phi": "φ", "pi": "π", "Delta": "Δ", "Sigma": "Σ",
}  # fmt: skip
COMMAND = re.compile(r"\\([A-Za-z]+)")


def setup(app):
    languages["labbook"] = SearchBook
    app.connect("config-inited", choose)


def choose(app, config):
    config.html_search_language = "labbook"


def tokens(text):
    """What a text is found by.

    >>> tokens("残差 and W_O"), tokens(r"\\sqrt{d_{ff}}")
    (['残差', '残', '差', 'and', 'W_O'], ['√', 'd_ff'])
    """
    text = unicodedata.normalize("NFKC", text)
    if "\\" in text or "{" in text:
        text = GROUP.sub(r"\1\2", WRAPPER.sub(r"\1", text))
        text = COMMAND.sub(lambda m: f" {COMMANDS.get(m[1], m[1])} ", text)
        text = GROUP.sub(r"\1\2", text)
    found = []
    for token in TOKEN.findall(text):
        if re.match(f"[{HAN}]", token):
            found += [token[i : i + 2] for i in range(len(token) - 1)]
            found += list(token)
        else:
            found.append(token)
    return found


class SearchBook(SearchEnglish):
    """English with stemming, Chinese by pairs of characters, symbols as they are."""

    lang = "en"
    language_name = "English, Chinese terms, symbols"
    js_splitter_code = Path(__file__).with_name("search_splitter.js").read_text(encoding="utf-8")

    def split(self, text):
        return tokens(text)

    def word_filter(self, word):
        return bool(word) and word not in self.stopwords
