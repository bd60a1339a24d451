"""Terms as plain lines: what the page says, none of what decorates it."""

from twostroke.model.terms import page_text


def test_article_is_kept_and_the_rest_is_not() -> None:
    page = """<html><head><style>p { color: red }</style><script>var x = "<p>no</p>";</script></head>
    <nav>menu</nav><div class="wide devsite-article-body clearfix"><h2>1. You   agree</h2>
    <div><p>to be <strong>kind</strong> &amp; fair
    to all.</p></div><ul><li>one</li><li>two</li></ul></div><footer>feedback</footer></html>"""
    assert page_text(page) == "1. You agree\nto be kind & fair to all.\none\ntwo"


def test_page_without_an_article_is_shown_whole() -> None:
    assert page_text("<p>Be kind.</p><style>x{}</style><p>Always.</p>") == "Be kind.\nAlways."


def test_unbalanced_page_does_not_stop_the_reading() -> None:
    assert page_text("</div></style><div class='devsite-article-body'><p>a</div><p>b") == "a"
    assert page_text("") == ""
