"""Text that a model may write to run a script in the page or to load something."""

from __future__ import annotations

# Requests for it are counted.
TRAP = "/trap"
SCRIPTS = [
    "<script>window.ran=1</script>", "<img src=x onerror=window.ran=1>",
    "<svg onload=window.ran=1>", f"<img src={TRAP}>", f"![x]({TRAP})",
    f"![x](http://127.0.0.1:9{TRAP})", f"![x][r]\n\n[r]: {TRAP}", "[x](javascript:window.ran=1)",
    "[x](JaVaScRiPt:window.ran=1)", "[x](java\nscript:window.ran=1)",
    "[x](&#106;avascript:window.ran=1)", "[x](&#x6A;avascript&colon;window.ran=1)",
    "[x](data:text/html,<script>window.ran=1</script>)", "[x](vbscript:window.ran=1)",
    "<javascript:window.ran=1>", "[x](file:///etc/passwd)", "[x](blob:http://localhost/1)",
    f"<iframe src={TRAP}></iframe>", "<iframe srcdoc='<script>parent.ran=1</script>'></iframe>",
    f"<link rel=stylesheet href={TRAP}>", f"<link rel=prefetch href={TRAP}>",
    f"<style>@import '{TRAP}';</style>", f"<style>*{{background:url({TRAP})}}</style>",
    f"<div style='background:url({TRAP})'>", f"<object data={TRAP}></object>",
    f"<embed src={TRAP}>", f"<video src={TRAP} autoplay onerror=window.ran=1>",
    f"<audio src={TRAP} autoplay>", f"<meta http-equiv=refresh content='0;url={TRAP}'>",
    f"<base href={TRAP}/>", f"<form action={TRAP}><input autofocus onfocus=window.ran=1>",
    "<details open ontoggle=window.ran=1>", "<body onload=window.ran=1>",
    "<math><mtext><script>window.ran=1</script></mtext></math>",
    "<svg><animate onbegin=window.ran=1 attributeName=x dur=1s>",
    "<marquee onstart=window.ran=1>", "```html\n<script>window.ran=1</script>\n```",
    "```\"><script>window.ran=1</script>\nx\n```", "`<script>window.ran=1</script>`",
    "| <img src=x onerror=window.ran=1> |\n|---|\n| <script>window.ran=1</script> |",
    "# <img src=x onerror=window.ran=1>", "> <script>window.ran=1</script>",
    "- [ ] <img src=x onerror=window.ran=1>", "&lt;script&gt;window.ran=1&lt;/script&gt;",
    "[<img src=x onerror=window.ran=1>](http://127.0.0.1:9/)",
    "[x](http://127.0.0.1:9/ \"' onmouseover='window.ran=1\")",
    "[x](http://127.0.0.1:9/\"onclick=\"window.ran=1)",
    "</div></article></main><script>window.ran=1</script>",
    "<!--><script>window.ran=1</script>-->", "<![CDATA[<script>window.ran=1</script>]]>",
    "<template><script>window.ran=1</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=window.ran=1>'>",
    "{{constructor.constructor('window.ran=1')()}}", "<a href='javascript:window.ran=1'>x</a>",
    "> " * 3000 + "deep", "[" * 3000, "*a_" * 2000, "\u202e<script>window.ran=1</script>\u0000",
]  # fmt: skip
