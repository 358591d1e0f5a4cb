"""Chat templates that try to exhaust memory or time, or to reach the interpreter."""

from __future__ import annotations

BIG = "{% set big = 'a' * 1000000 %}"


def repeated(start: str, step: str, times: int = 99) -> str:
    """A value that grows with each step of a loop."""
    return (
        f"{{% set ns = namespace(x={start}) %}}{{% for i in range({times}) %}}"
        f"{{% set ns.x = {step} %}}{{% endfor %}}{{{{ ns.x }}}}"
    )


def nested(opening: str, inner: str, closing: str, depth: int) -> str:
    """``inner`` between many pairs."""
    return opening * depth + inner + closing * depth


# Integers of one hash: Python's is modulo this prime.
_COLLIDING = "{% set p = 2 ** 61 - 1 %}" + (
    "{% set ns = namespace(l=[]) %}{% for i in range(9000) %}"
    "{% set ns.l = ns.l + [p * (i + 1)] %}{% endfor %}"
)
_COLLIDING_LITERAL = (
    "[" + ",".join(str((2**61 - 1) * i) for i in range(1, 3000)) + "]"  # few enough for a template
)

MEMORY = {
    # formats
    "percent width": "{{ '%1000000000d' % 1 }}",
    "percent width computed": "{{ '%*d' % (10**9, 1) }}",
    "percent precision": "{{ '%.1000000000d' % 1 }}",
    "percent precision float": "{{ '%.2000000000f' % 1.5 }}",
    "percent named": "{{ '%(a)1000000000d' % {'a': 1} }}",
    "percent nested parentheses": "{{ '%(a(b)c)1000000000s' % {'a(b)c': 1} }}",
    "percent deep parentheses": (
        "{{ ('%(' ~ '(' * 50 ~ ')' * 50 ~ ')999999999s') % {'(' * 50 ~ ')' * 50: 1} }}"
    ),
    "percent bytes": "{{ 'x'.encode().join([]) ~ ('%1000000000d'.encode() % 1) }}",
    "percent bytes star": "{{ '%*s'.encode() % (10**9, 'x'.encode()) }}",
    "percent bytes named": "{{ '%(a)1000000000d'.encode() % {'a'.encode(): 1} }}",
    "percent repr": BIG + "{{ ('%r' * 3000) % ((big,) * 3000) }}",
    "percent filter": "{{ '%1000000000d' | format(1) }}",
    "percent filter star": "{{ '%*d' | format(10**9, 1) }}",
    "percent filter many": BIG + "{{ ('%(a)s' * 5000) | format(a=big) }}",
    "percent many": "{{ ('%9999d' * 90000) % (range(90000) | list | batch(90000) | first) }}",
    "braces width": "{{ '{:1000000000}'.format(1) }}",
    "braces width nested": "{{ '{:{w}}'.format(1, w=10**9) }}",
    "braces index": "{{ '{0[}]:1000000000}'.format({'}': 1}) }}",
    "braces index map": "{{ '{a[}]:1000000000}'.format_map({'a': {'}': 1}}) }}",
    "braces map": "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "braces precision": "{{ '{:.1000000000f}'.format(1.5) }}",
    "braces zero": "{{ '{:01000000000d}'.format(1) }}",
    "braces fill": "{{ '{:x<1000000000}'.format('') }}",
    "braces many": BIG + "{{ ('{0}' * 5000).format(big) }}",
    "braces attr": "{{ ('{:1000000000}' | attr('format'))(1) }}",
    "braces map filter": "{{ ['{:1000000000}'] | map('format') | list }}{{ '{:999999999}'.format }}"
    "{% for f in ['{:999999999}'.format] %}{{ f(1) }}{% endfor %}",
    "braces binary": "{{ '{:b}'.format(2 ** 99999999) }}",
    "braces group": "{{ '{:,}'.format(10 ** 4299) * 999999 }}",
    "time width": "{{ strftime_now('%1000000000Y') }}",
    "time many": "{{ strftime_now('%c' * 50000000) }}",
    # multiplication, powers, shifts of size
    "times text": "{{ 'a' * 10**10 }}",
    "times text reversed": "{{ 10**10 * 'a' }}",
    "times list": "{{ [1] * 10**10 }}",
    "times tuple": "{{ (1,) * 10**10 }}",
    "times bytes": "{{ 'a'.encode() * 10**10 }}",
    "times negative": "{{ 'a' * (0 - 10**10) * -1 ~ 'a' * 10**10 }}",
    "times folded": "{{ 'a' * 1000000000 }}",
    "times folded twice": "{{ ('a' * 100000000) ~ ('b' * 100000000) }}",
    "power": "{{ 10 ** (10**9) }}",
    "power nested": "{{ 9 ** 9 ** 9 ** 9 }}",
    "power folded": "{{ 10**100000000 }}",
    "power negative": "{{ (0 - 7) ** 999999999 }}",
    "squares": repeated("3", "ns.x * ns.x"),
    # concatenation
    "doubling ~": repeated("'aa'", "ns.x ~ ns.x"),
    "doubling +": repeated("'aa'", "ns.x + ns.x"),
    "doubling list": repeated("['a']", "ns.x + ns.x"),
    "doubling nested list": repeated("['a']", "[ns.x, ns.x]"),
    "doubling dict": repeated("1", "{'a': ns.x, 'b': ns.x}"),
    "doubling tuple": repeated("1", "(ns.x, ns.x)"),
    "doubling dict()": repeated("1", "dict(a=ns.x, b=ns.x)"),
    "doubling namespace": repeated("1", "namespace(a=ns.x, b=ns.x)"),
    "doubling join": repeated("'aa'", "[ns.x, ns.x] | join"),
    "doubling format": repeated("'aa'", "'%s%s' % (ns.x, ns.x)"),
    "doubling replace": repeated("'aa'", "ns.x.replace('a', 'aa')"),
    "doubling tojson": repeated("'\"'", "ns.x | tojson"),
    "doubling escape": repeated("'&'", "(ns.x | forceescape) ~ ''"),
    "doubling encode": repeated("'\\\\'", "(ns.x.encode() | string)"),
    "doubling pprint": repeated("'\\\\'", "ns.x | pprint"),
    "long ~": BIG + "{% set y = " + " ~ ".join(["big"] * 3000) + " %}",
    "long +": BIG + "{% set y = " + " + ".join(["big"] * 400) + " %}",
    "chains of ~ in a loop": BIG + "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}"
    "{% set ns.l = [ns.l, big ~ i] %}{% endfor %}",
    "kept slices": BIG + "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}"
    "{% set ns.l = ns.l + [big[1:]] %}{% endfor %}",
    "output in a loop": BIG + "{% for i in range(99999) %}{{ big }}{% endfor %}",
    "set block": "{% set x %}{% for i in range(9999) %}{{ 'a' * 100000 }}{% endfor %}{% endset %}",
    "filter block": "{% filter upper %}{% for i in range(9999) %}{{ 'a' * 100000 }}{% endfor %}"
    "{% endfilter %}",
    "call block": "{% macro m() %}{{ caller() ~ caller() }}{% endmacro %}"
    + "{% call m() %}" * 40
    + "a" * 1000
    + "{% endcall %}" * 40,
    "macro": "{% macro m(n) %}{% if n %}{{ m(n-1) ~ m(n-1) }}{% else %}{{ 'a' * 999 }}{% endif %}"
    "{% endmacro %}{{ m(90) }}",
    "macro kept": BIG + "{% set ns = namespace(m=none) %}{% for i in range(9999) %}"
    "{% set y = big ~ i %}{% macro m(a=y, b=ns.m) %}{% endmacro %}{% set ns.m = m %}{% endfor %}",
    "views kept": BIG + "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}"
    "{% set ns.l = [{(big ~ i): 1}.keys(), ns.l] %}{% endfor %}",
    "generators kept": BIG + "{% set ns = namespace(l=none) %}{% for i in range(99999) %}"
    "{% set ns.l = [(big ~ i) | map('upper'), ns.l] %}{% endfor %}",
    "cyclers kept": BIG + "{% set ns = namespace(l=none) %}{% for i in range(99999) %}"
    "{% set ns.l = cycler(big ~ i, ns.l) %}{% endfor %}",
    "joiners kept": BIG + "{% set ns = namespace(l=none) %}{% for i in range(99999) %}"
    "{% set ns.l = [joiner(big ~ i), ns.l] %}{% endfor %}",
    "attribute names": BIG + "{% set ns = namespace() %}{% for i in range(99999) %}"
    "{% set ns.l = [ns.l, dict([(big ~ i, 1)])] %}{% endfor %}",
    "many small": "{% set ns = namespace(l=none) %}{% for i in range(99999) %}"
    "{% set ns.l = [ns.l, [i] * 1000] %}{% endfor %}",
    # methods
    "replace": BIG + "{{ big.replace('a', big) }}",
    "replace empty": BIG + "{{ big.replace('', big) }}",
    "replace bytes": BIG + "{{ big.encode().replace('a'.encode(), big.encode()) }}",
    "replace attr": BIG + "{{ (big | attr('replace'))('a', big) }}",
    "replace filter": BIG + "{{ big | replace('a', big) }}",
    "join": BIG + "{{ big.join(range(90000) | map('string')) }}",
    "join filter": BIG + "{{ range(90000) | join(big) }}",
    "join itself": BIG + "{{ big.join(big) }}",
    "join bytes": BIG + "{{ big.encode().join(['a'.encode()] * 90000) }}",
    "center": "{{ 'a'.center(10**10) }}",
    "center filter": "{{ 'a' | center(10**10) }}",
    "ljust": "{{ 'a'.ljust(10**10) }}",
    "rjust bytes": "{{ 'a'.encode().rjust(10**10) }}",
    "zfill": "{{ ('a' | attr('zfill'))(10**10) }}",
    "expandtabs": "{{ 'a\t'.expandtabs(2000000000) }}",
    "expandtabs many": "{{ ('\t' * 100000).expandtabs(100000) }}",
    "translate": "{{ ('a' * 100000).translate({97: 'b' * 100000}) }}",
    "to_bytes": "{{ (1).to_bytes(10**10) }}",
    "to_bytes big": "{{ (1).to_bytes(length=2000000000, byteorder='big') | length }}",
    "splitlines": "{{ ('\n' * 60000000).splitlines() }}",
    "split": "{{ ('a ' * 30000000).split() }}",
    "partition": BIG + repeated("'a' * 1000000", "ns.x.partition('a') | list | join ~ ns.x"),
    "encode": "{{ ('a' * 60000000).encode('utf-32') }}",
    "casefold": "{{ ('\u1e9e' * 60000000).casefold() }}",
    "upper": "{{ ('\ufb03' * 30000000).upper() }}",
    "title": "{{ ('\ufb03' * 30000000).title() }}",
    "hex": "{{ ('a' * 70000000).encode().hex() }}",
    "hex joined": "{{ ('a' * 20000000).encode().hex('-', 1) }}",
    # filters
    "indent": "{{ ('a\n' * 1000) | indent(10**7) }}",
    "indent by text": BIG + "{{ ('a\n' * 1000) | indent(big) }}",
    "indent first": "{{ 'a' | indent(10**10, first=true) }}",
    "tojson indent": "{{ [1] | tojson(indent=10**10) }}",
    "tojson indent text": BIG + "{{ range(9999) | list | tojson(indent=big) }}",
    "tojson separators": BIG + "{{ range(9999) | list | tojson(separators=(big, big)) }}",
    "tojson deep": repeated("1", "[ns.x, ns.x]", 26) + "{{ ns.x | tojson }}",
    "batch": "{{ [1] | batch(10**10, 'x') | list | length }}",
    "batch many": "{% for x in range(99999) | batch(1, 1) | list %}{{ [x] * 9999 }}{% endfor %}",
    "slice": "{{ [1] | slice(10**10) | list | length }}",
    "slice fill": "{{ [1] | slice(99999999, 'x') | list | length }}",
    "wordwrap": "{{ ('a' * 100000) | wordwrap(1, wrapstring='b' * 100000) }}",
    "lipsum": "{{ lipsum(10**7) }}",
    "lipsum words": "{{ lipsum(1, false, 10**9, 10**9 + 1) }}",
    "urlize": "{{ ('a.com ' * 100000) | urlize(target='b' * 100000) }}",
    "xmlattr": BIG + "{{ ({'a': big} | xmlattr) * 999 }}",
    "groupby": BIG + "{% for g in range(99999) | groupby('real') %}{{ g ~ big }}{% endfor %}",
    "sum": BIG + "{{ ([big] * 9999) | sum(start='') }}",
    "sum lists": "{{ ([[1] * 1000] * 99999) | sum(start=[]) }}",
    "list of range": "{{ ([range(100000)] * 99999) | map('list') | list }}",
    "map of lists": BIG + "{{ ([big] * 90000) | map('upper') | list | length }}",
    "reverse": "{{ ('ab' * 99999999) | reverse }}",
    "items": "{{ [range(100000) | list] * 9999 | length * 'a' * 999999 }}",
    "string of lists": BIG + "{{ [[big] * 999] * 999 | length }}{{ ([big] * 9999) | string }}",
    "integer to text": "{{ (10 ** 4299) ~ '' * 1 }}{{ ((10 ** 4299) | string) * 9999999 }}",
    "filesizeformat": "{{ (('9' * 4000) | int | string) * 9999999 }}",
    "random": "{{ [BIG, 'a' * 9999999999] | random }}",
    "loop.cycle": BIG + "{% for i in range(9999) %}{{ loop.cycle(big, big ~ big) }}{% endfor %}",
    "loop.changed": BIG + "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}"
    "{% set ns.l = [ns.l, loop, big ~ i] %}{{ loop.changed(ns.l) }}{% endfor %}",
    "loop.previtem": BIG + "{% for i in [big] * 9999 %}{{ loop.previtem ~ loop.nextitem }}"
    "{% endfor %}",
    "recursive loop": "{% for x in [1, 2] recursive %}{{ 'a' * 999999 }}{{ loop([1, 2]) }}"
    "{% endfor %}",
    "holding itself": "{% set ns = namespace() %}{% set ns.a = [ns] %}{% set ns.a = [ns.a] %}"
    "{{ ns.a | string * 9999999999 }}",
    "shown error": BIG + "{{ messages[(big ~ big) * 99].x.y }}",
    "raised": BIG + "{{ raise_exception(big * 999) }}",
    "raised much": "{{ raise_exception('a' * 60000000) }}",
    "default": BIG + "{{ nothing | default(big * 999) }}",
    "text of much": "{{ 'a' * 20000000 }}",
    "wide characters": "{{ '\U0001f600' * 20000000 }}",
    "escapes": "{{ '\\x1b' * 5000000 }}",
}

TIME = {
    "range": "{% for i in range(10**9) %}{% endfor %}",
    "range product": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
    "{% endfor %}",
    "text product": "{% set x = 'a' * 99999 %}{% for i in x %}{% for j in x %}{% for k in x %}"
    "{% endfor %}{% endfor %}{% endfor %}",
    "macro tree": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "call tree": "{% macro f(n) %}{% if n %}{% call f(n-1) %}{% endcall %}{{ f(n-1) }}{% endif %}"
    "{{ caller() if caller }}{% endmacro %}{{ f(60) }}",
    "search": "{% set x = 'a' * 2000000 %}{% for i in range(99999) %}{{ 'ab' in x ~ 'b' }}"
    "{% endfor %}",
    "filtered loop": "{% for i in range(99999) if range(99999) | sum < 0 %}{% endfor %}",
    "selectattr": "{% for i in range(9999) %}{{ range(99999) | selectattr('real', 'gt', 99999)"
    " | list }}{% endfor %}",
    "round": "{{ 1.5 | round(10**9) }}",
    "round down": "{{ 1.5 | round(-(10**9)) }}",
    "round floor": "{{ 1.5 | round(99999999, 'floor') }}",
    "round integer": "{{ 12345 | round(10**8, 'ceil') }}",
    "round big": "{{ (10 ** 300) | round(-99999999) }}",
    "rfind": "{% set x = 'a' * 20000000 %}{{ x.rfind('b' ~ 'a' * 10000000) }}",
    "find": "{% set x = ('a' * 3000 ~ 'b') * 3000 %}{{ x.find('a' * 3000 ~ 'a' * 3000 ~ 'c') }}"
    "{% for i in range(9999) %}{{ x.count('a' * 2999 ~ 'bb') }}{% endfor %}",
    "count": "{% set x = 'a' * 9000000 %}{% for i in range(999) %}{{ x.count('a') }}{% endfor %}",
    "rindex": "{% set x = 'a' * 9000000 %}{{ x.rindex('b' ~ 'a' * 4000000) }}",
    "rsplit": "{% set x = 'a' * 9000000 %}{{ x.rsplit('b' ~ 'a' * 4000000) | length }}",
    "rpartition": "{% set x = 'a' * 9000000 %}{{ x.rpartition('b' ~ 'a' * 4000000) | length }}",
    "strip": "{% set x = '\u0101' * 4000000 %}{{ x.strip(('\u0201' * 4000000) ~ '\u0101') }}",
    "trim": "{% set x = '\u0101' * 4000000 %}{{ x | trim(('\u0201' * 4000000) ~ '\u0101') }}",
    "lstrip": "{% set x = '\u0101' * 4000000 %}{{ x.lstrip(('\u0201' * 4000000) ~ '\u0101') }}",
    "strip bytes": "{% set x = ('a' * 4000000).encode() %}{{ x.strip(('b' * 4000000 ~ 'a')"
    ".encode()) }}",
    "replace nothing": "{% set x = 'a' * 9000000 %}{% for i in range(999) %}"
    "{{ x.replace('b', 'c') | length }}{% endfor %}",
    "in colliding": _COLLIDING + "{% set d = dict.fromkeys(ns.l) %}{{ d | length }}",
    "fromkeys colliding": "{% set l = " + _COLLIDING_LITERAL + " %}{% for i in range(999) %}"
    "{{ dict.fromkeys(l) | length }}{% endfor %}",
    "unique colliding": _COLLIDING + "{{ ns.l | unique | list | length }}",
    "unique literal": "{% set l = " + _COLLIDING_LITERAL + " %}{% for i in range(999) %}"
    "{{ l | unique | list | length }}{% endfor %}",
    "groupby colliding": _COLLIDING + "{{ ns.l | groupby('real') | length }}",
    "in list": "{% set l = range(99999) | list %}{% for i in range(99999) %}{{ (0 - 1) in l }}"
    "{% endfor %}",
    "list index": "{% set l = range(99999) | list %}{% for i in l %}{{ l.index(99998) }}"
    "{% endfor %}",
    "list count": "{% set l = range(99999) | list %}{% for i in l %}{{ l.count(1) }}{% endfor %}",
    "comparison": "{% set l = [[1] * 99999] * 99999 %}{{ l == l + [] }}"
    "{% for i in range(9999) %}{{ l + [i] == l + [i + 1] }}{% endfor %}",
    "nested comparison": repeated("1", "[ns.x, ns.x]", 60)
    + "{% set a = ns.x %}"
    + repeated("1", "[ns.x, ns.x]", 60)
    + "{{ a == ns.x }}",
    "hash of tuples": "{% set ns = namespace(x=(1,)) %}{% for i in range(60) %}"
    "{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}",
    "sort": "{% for i in range(9999) %}{{ range(99999) | reverse | sort | length }}{% endfor %}",
    "sort of lists": "{% set l = [[0] * 99999] * 9999 %}{{ l | sort | length }}",
    "sort of texts": BIG + "{{ ([big, big ~ 'a'] * 9999) | sort | length }}",
    "min max": "{% for i in range(9999) %}{{ range(99999) | max + (range(99999) | min) }}"
    "{% endfor %}",
    "dictsort": "{% set d = dict.fromkeys(range(99999), 1) %}{% for i in range(9999) %}"
    "{{ d | dictsort | length }}{% endfor %}",
    "power modulo": "{{ (7 ** 99999) ** 99 % 10 }}",
    "power tower": "{% set x = 3 ** 200000 %}{% for i in range(999) %}{{ x * x % 7 }}{% endfor %}",
    "division": "{% set x = 3 ** 500000 %}{{ (x * x + 1) // x % 3 }}",
    "float of text": "{% for i in range(99999) %}{{ ('9' * 99999) | float }}{% endfor %}",
    "float of long text": "{{ ('1' * 4000000 ~ '.' ~ '1' * 4000000) | float }}"
    "{% for i in range(999) %}{{ ('1' * 9000000) | float }}{% endfor %}",
    "integer of text": "{% for i in range(99999999) %}{{ ('9' * 4299) | int }}{% endfor %}",
    "integer of base": "{{ ('z' * 3000000) | int(0, 36) % 7 }}",
    "integer of base 3": "{{ ('2' * 9000000) | int(0, 3) % 7 }}",
    "integer of base 32": "{% for i in range(999) %}{{ ('v' * 9000000) | int(0, 32) % 7 }}"
    "{% endfor %}",
    "wordcount": "{% for i in range(9999) %}{{ ('a ' * 999999) | wordcount }}{% endfor %}",
    "wordwrap time": "{{ ('a' * 9000000) | wordwrap(1) | length }}",
    "striptags": "{{ ('<' * 200000) | striptags | length }}",
    "striptags comments": "{{ ('<!--' * 200000) | striptags | length }}",
    "urlize time": "{{ ('(' * 200000 ~ 'www.a.b' ~ ')' * 200000) | urlize | length }}",
    "urlize words": "{{ ('a@' * 3000000) | urlize | length }}",
    "title time": "{% for i in range(9999) %}{{ (('a-' * 999999) | title) | length }}{% endfor %}",
    "truncate": "{% for i in range(9999) %}{{ ('a ' * 999999) | truncate(999999) | length }}"
    "{% endfor %}",
    "pprint": "{{ (range(99999) | list | batch(1) | list) | pprint | length }}"
    "{{ (range(99999) | list) | pprint | length }}",
    "pprint deep": repeated("1", "[ns.x]", 90) + "{% for i in range(99999) %}{{ ns.x | pprint }}"
    "{% endfor %}",
    "urlencode": "{{ ('\u20ac' * 3000000) | urlencode | length }}",
    "tojson time": "{% for i in range(9999) %}{{ range(99999) | list | tojson | length }}"
    "{% endfor %}",
    "tojson sorted": "{{ dict.fromkeys(range(99999)) | tojson(sort_keys=true) | length }}"
    "{% for i in range(9999) %}{{ range(99999) | list | tojson(indent=1) | length }}{% endfor %}",
    "loop over self": "{% set ns = namespace(l=[1]) %}{% for i in range(99999) %}"
    "{% for j in ns.l %}{% endfor %}{% set ns.l = ns.l + [i] %}{% endfor %}",
    "cycler": "{% set c = cycler(1, 2) %}{% for i in range(99999) %}{% for j in range(99999) %}"
    "{{ c.next() }}{% endfor %}{% endfor %}",
    "endless text": "{% for i in 'a' * 90000000 %}{{ i * 99 | length }}{% endfor %}",
    "set blocks": "{% for i in range(99999) %}{% set x %}{{ range(9999) | list }}{% endset %}"
    "{% endfor %}",
    "exceptions": "{% for i in range(99999999) %}{% endfor %}{{ nothing.a.b }}",
    "undefined": "{% for i in range(99999) %}{% for j in range(9999) %}{{ nothing }}{% endfor %}"
    "{% endfor %}",
    "recursion in data": repeated("{}", "{'a': ns.x}", 900) + "{% for i in range(999999) %}"
    "{{ ns.x | string }}{% endfor %}",
}

COMPILING = {
    "nested ifs": nested("{% if 1 %}", "x", "{% endif %}", 90),
    "many nested ifs": nested("{% if 1 %}", "x", "{% endif %}", 3000),
    "nested ifs and sets": "".join(f"{{% if a{i} %}}{{% set b{i} = {i} %}}" for i in range(90))
    + "{% endif %}" * 90,
    "sets in nested ifs": "".join(
        f"{{% if x %}}{''.join(f'{{% set v{j} = {i} %}}' for j in range(60))}" for i in range(80)
    )
    + "{% endif %}" * 80,
    "many sets": "".join(f"{{% set v{i} = {i} %}}" for i in range(6000)),
    "many sets in branches": "".join(
        f"{{% if x %}}{{% set v{i} = 1 %}}{{% endif %}}" for i in range(3000)
    ),
    "many branches": "{% if x %}"
    + "".join(f"{{% elif y{i} %}}{{% set v{i} = 1 %}}" for i in range(3000))
    + "{% endif %}",
    "nested sets": nested("{% set a %}", "x", "{% endset %}", 2000),
    "nested loops": nested("{% for i in [1] %}", "x", "{% endfor %}", 30),
    "nested loops, a few": nested("{% for i in [1, 2] %}", "x", "{% endfor %}", 18),
    "nested macros": nested("{% macro m() %}", "x", "{% endmacro %}", 300),
    "nested calls": nested("{% call f() %}", "x", "{% endcall %}", 300),
    "nested filters": nested("{% filter upper %}", "x", "{% endfilter %}", 300),
    "nested blocks": "".join(f"{{% block b{i} %}}" for i in range(900)) + "{% endblock %}" * 900,
    "many blocks": "".join(f"{{% block b{i} %}}{{% endblock %}}" for i in range(4000)),
    "nested with": nested("{% with a = 1 %}", "x", "{% endwith %}", 900),
    "nested generation": nested("{% generation %}", "x", "{% endgeneration %}", 900),
    "many macros": "".join(f"{{% macro m{i}() %}}{{% endmacro %}}" for i in range(3000)),
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "parentheses, a few": "{{ " + "(" * 150 + "1" + ")" * 150 + " }}",
    "brackets": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "braces": "{{ " + "{1:" * 5000 + "1" + "}" * 5000 + " }}",
    "unclosed": "{{ " + "(" * 60000,
    "sums": "{{ " + "1+" * 5000 + "1 }}",
    "sums of text": "{{ " + "'a'+" * 12000 + "1 }}",
    "nots": "{{ " + "not " * 20000 + "1 }}",
    "minuses": "{{ " + "-" * 60000 + "1 }}",
    "powers": "{{ " + "1**" * 30000 + "1 }}",
    "comparisons": "{{ " + "1<" * 30000 + "1 }}",
    "ands": "{{ " + "1 and " * 15000 + "1 }}",
    "conditions": "{{ " + "1 if 1 else " * 8000 + "1 }}",
    "pipes": "{{ 1" + "|e" * 60000 + " }}",
    "tests": "{{ 1" + " is string" * 10000 + " }}",
    "dots": "{{ a" + ".b" * 60000 + " }}",
    "subscripts": "{{ a" + "[0]" * 40000 + " }}",
    "calls": "{{ a" + "()" * 60000 + " }}",
    "arguments": "{{ f(" + "1," * 60000 + "1) }}",
    "keywords": "{{ f(" + ",".join(f"a{i}=1" for i in range(9000)) + ") }}",
    "list": "{{ [" + "1," * 60000 + "] }}",
    "dict": "{{ {" + ",".join(f"{i}:1" for i in range(12000)) + "} }}",
    "digits": "{{ 9" + "9" * 5000 + " }}",
    "digits, more": "{{ 0x" + "f" * 120000 + " }}",
    "float digits": "{{ 1." + "1" * 120000 + " }}",
    "exponent": "{{ 1e999999999 }}{{ 1_0e-99999999 }}",
    "long literal": "{{ '" + "a" * 130000 + "' }}",
    "many literals": "{{ 'a' }}" * 14000,
    "many outputs": "{{a}}" * 26000,
    "many comments": "{##}" * 32000,
    "many comments, open": "{#" * 60000,
    "many raws": "{% raw %}{% endraw %}" * 6000,
    "many lines": "\n" * 131000,
    "many spaces": " " * 65000 + "{% if 1 %}" + " " * 65000 + "{% endif %}",
    "open tag": "{%" + " " * 130000,
    "trimmed": "{%- if 1 -%}" + " \n" * 60000 + "x{% endif %}",
    "whitespace runs": (" " * 1000 + "a") * 130,
    "quotes": "{{ " + "'" * 60000 + " }}",
    "escapes in literal": "{{ '" + "\\x41" * 32000 + "' }}",
    "names of characters": "{{ '" + "\\N{DASH}" * 16000 + "' }}",
    "operators": "{{ " + "+ - * / " * 16000 + " }}",
    "names": "{{ " + " ~ ".join(f"a{i}" for i in range(14000)) + " }}",
    "one long name": "{{ " + "a" * 130000 + " }}",
    "names of letters": "{{ " + "\u4e2d" * 130000 + " }}",
    "folded range": "{{ range(99999) | list | length * range(99999) | list | length }}",
    "folded filters": "{{ ('a' * 99999999) | upper | lower | title | reverse | length }}",
    "folded sort": "{{ (['a' * 9999] * 99999) | sort | join | length }}",
    "folded chain": "{{ " + " ~ ".join(["('a' * 9999999)"] * 200) + " }}",
    "folded power": "{% if 0 %}{{ 7 ** 99999999 }}{% endif %}",
    "folded condition": "{{ 1 if 'a' * 99999999999 else 2 }}",
    "too long": "x" * 1_000_000,
}

_EXPRESSIONS = [
    "''.__class__.__mro__[1].__subclasses__()",
    "''.__class__",
    "''['__class__']",
    "''['__cl' ~ 'ass__']",
    "(''|attr('__class__')).__mro__",
    "''|attr('__cl' ~ 'ass__')|attr('__base__')",
    "['']|map(attribute='__class__')|list|first|string ~ x.y.z",
    "['']|map('attr', '__class__')|first ~ x.y.z",
    "[['']]|groupby('__class__')|list|first|first ~ x.y.z",
    "['']|selectattr('__class__.__mro__')|list|first ~ x.y.z",
    "['']|sum(attribute='__class__.__base__')",
    "['']|sort(attribute='__class__.__base__.__subclasses__')",
    "''|attr('format')('{0.__class__}')|attr('__class__')",
    "'{0.__class__.__mro__}'.format(1)",
    "'{0.__class__}'.format(1)",
    "'{a.__class__}'.format(a=1)",
    "'{0[__class__]}'.format(messages)",
    "'{a.__init__.__globals__}'.format_map({'a': cycler})",
    "'{a.__class__}'.format_map({'a': 1})",
    "('{0.__class__}'|attr('format'))(1)",
    "('{a.__class__}'|attr('format_map'))({'a': 1})",
    "['{0.__class__}']|map('attr', 'format')|first|string ~ x.y.z",
    "'{0.__class__}'|format(1)|length > 20 or x.y.z",
    "('{0.__class__}'|e).format(1)",
    "('{0.__class__}'|safe).format(1)",
    "('{0.__class__}'|safe).format_map({'0': 1})",
    "''.format.__self__.__class__",
    "''.join.__self__",
    "''.join.__class__",
    "raise_exception.__globals__",
    "raise_exception.__code__",
    "raise_exception.__closure__[0]",
    "strftime_now.__globals__.datetime",
    "strftime_now.func_globals",
    "lipsum.__globals__.os",
    "lipsum['__globals__']['os'].popen('id').read()",
    "cycler.__init__.__globals__.os",
    "cycler('a').__init__.__globals__",
    "cycler('a').next.__func__.__globals__",
    "cycler('a').next.__self__.__class__",
    "joiner.__init__.__globals__",
    "namespace.__init__.__globals__",
    "namespace(a=1).__class__",
    "namespace(a=1)._Namespace__attrs.x.y",
    "dict.__base__",
    "dict.update(messages[0], {'role': 'x'})",
    "dict.pop(messages[0], 'role')",
    "dict.clear(messages[0])",
    "namespace(_a=1)",
    "namespace(__call__=raise_exception)",
    "namespace({'__html__': lipsum})",
    "dict.mro()",
    "dict.__subclasses__()",
    "dict(a=1).__class__.__base__",
    "range.__globals__",
    "range(3).__class__",
    "self.__init__.__globals__",
    "self._TemplateReference__context",
    "self.__class__",
    "(messages|map('upper')).gi_frame",
    "(messages|map('upper')).gi_frame.f_globals",
    "(messages|map('upper')).gi_code",
    "(messages|map('upper')|attr('gi_frame')).f_back",
    "(messages|select).gi_yieldfrom",
    "(messages|batch(1)).gi_frame.f_builtins",
    "messages.append(1)",
    "messages.clear()",
    "messages.extend([1])",
    "messages.sort()",
    "messages[0].update({'role': 'x'})",
    "messages[0].pop('role')",
    "messages[0].setdefault('x', 1)",
    "(messages|attr('append'))(1)",
    "messages.__class__.append(messages, 1)",
    "messages.__iter__.__self__.append(1)",
    "messages.__len__()",
    "messages.__reduce_ex__(2)",
    "messages.__getattribute__('__class__')",
    "(1).__class__.__base__",
    "(1).real.__class__",
    "(1).from_bytes.__self__.__class__",
    "none.__class__",
    "true.__class__.__bases__",
    "nothing.__class__",
    "nothing.__init__.__globals__",
    "nothing._undefined_exception.__class__.x",
    "nothing|attr('_fail_with_undefined_error')|attr('__globals__')|list",
    "get_flashed_messages.__globals__",
    "config.items()",
    "request.application.__globals__",
    "url_for.__globals__",
    "__builtins__.open('/etc/passwd').read()",
    "__import__('os').system('id')",
    "open('/etc/passwd').read()",
    "eval('1')",
    "context.environment.x",
    "environment.globals.x",
    "_('a').x",
    "caller.__globals__.x",
    "varargs.x",
    "loop.__class__",
    "'%(__class__)s' % {'a': 1}",
    "'%c' % ('a'.__class__)",
]
_BLOCKS = [
    "{% include 'x' %}",
    "{% include '/etc/passwd' %}",
    "{% extends 'x' %}",
    "{% import 'x' as x %}",
    "{% from 'os' import path %}",
    "{% import '__main__' as x %}{{ x.y.z }}",
    "{% for x in [1] %}{{ loop.__class__ }}{% endfor %}",
    "{% for x in [1] %}{{ loop._iterator.__class__ }}{% endfor %}",
    "{% for x in [1] %}{{ loop._recurse.__globals__ }}{% endfor %}",
    "{% for x in [1] recursive %}{{ loop.__call__.__func__ }}{% endfor %}",
    "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "{% macro m() %}{% endmacro %}{{ m._environment.globals }}",
    "{% macro m() %}{% endmacro %}{{ m.__class__ }}",
    "{% macro m() %}{{ caller.__class__ }}{% endmacro %}{% call m() %}{% endcall %}",
    "{% macro m() %}{{ varargs.__class__ }}{% endmacro %}{{ m(1) }}",
    "{% macro m() %}{{ kwargs.__class__ }}{% endmacro %}{{ m(a=1) }}",
    "{% set x = cycler %}{% set x.y = 1 %}",
    "{% set ns = namespace() %}{% set ns.__class__ = dict %}{{ ns.__class__ }}",
    "{% set ns = namespace(__class__=1) %}{{ ns.__init__ }}",
    "{% set ns = namespace(**{'__init__': 1}) %}{{ ns.__dict__ }}",
    "{% set raise_exception.x = 1 %}",
    "{% set messages.x = 1 %}",
    "{% block b %}{{ self.b.__class__ }}{% endblock %}",
    "{% block b %}{{ self.b._context.environment }}{% endblock %}{{ super.__class__ }}",
    "{% filter attr('__class__') %}x{% endfilter %}{{ x.y.z }}",
    "{% with x = ''.__class__ %}{{ x.__base__ }}{% endwith %}",
    "{% autoescape true %}{{ '{0.__class__}'.format(1) }}{% endautoescape %}",
    "{% macro recursion() %}{{ recursion() }}{% endmacro %}{{ recursion() }}",
    "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
]
INTERNALS = ["{{ " + text + " }}" for text in _EXPRESSIONS] + _BLOCKS
