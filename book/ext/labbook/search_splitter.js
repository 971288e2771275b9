/* Cuts a query as labbook/search.py cuts the pages: words, pairs of Chinese characters, symbols. */
var splitQuery = function (query) {
  var han = "\\u3400-\\u4dbf\\u4e00-\\u9fff\\uf900-\\ufaff";
  var token = new RegExp("[" + han + "]+|(?:(?![" + han + "])[\\p{L}\\p{N}_])+|[√∑∏∂∇≤≥≈≠∈∉∞⊙⊗⊕·×→←⊤‖]", "gu");
  var found = [];
  (query.normalize("NFKC").replace(/\{(\w+)\}/g, "$1").match(token) || []).forEach(function (word) {
    if (!new RegExp("^[" + han + "]{2}").test(word)) found.push(word);
    else for (var i = 0; i + 1 < word.length; i++) found.push(word.slice(i, i + 2));
  });
  return found;
};
