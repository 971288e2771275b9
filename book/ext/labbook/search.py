"""Search that finds Chinese terms of two characters, and symbols, among English words.

Sphinx's English search takes a run of Chinese characters for one word, so 残差 is not found in
残差连接. Here such a run is indexed as its characters and its pairs of neighbours, and a query is
split in the same way.
"""

import re

from sphinx.search.en import SearchEnglish

CJK = r"\u3400-\u9fff"
WORDS = re.compile(rf"[{CJK}]+|[^\W{CJK}]+|[√∂Σσαβγδεθλμτω∞≈≤≥≠×·→∈∑∏]")

SPLIT_QUERY = """
function splitQuery(query) {
  const word = "(?:(?![\\u3400-\\u9fff])[\\p{L}\\p{N}_])+";
  const term = new RegExp("[\\u3400-\\u9fff]+|" + word + "|[√∂∞≈≤≥≠×·→∈∑∏]", "gu");
  const found = query.match(term) || [];
  return found.flatMap((term) => {
    if (!/^[\\u3400-\\u9fff]/.test(term) || term.length < 3) return [term];
    return Array.from({length: term.length - 1}, (_, i) => term.slice(i, i + 2));
  });
}
"""


class SearchWithChinese(SearchEnglish):
    """English with its stemmer, Chinese as characters and pairs, symbols as words."""

    lang = "en"
    js_splitter_code = SPLIT_QUERY

    def split(self, input):
        """Words of a text as they are indexed.

        >>> SearchWithChinese({}).split("残差连接 adds x")
        ['残', '差', '连', '接', '残差', '差连', '连接', 'adds', 'x']
        """
        words = []
        for word in WORDS.findall(input):
            if re.match(rf"[{CJK}]", word):
                words += [*word, *(word[i : i + 2] for i in range(len(word) - 1))]
            else:
                words.append(word)
        return words
