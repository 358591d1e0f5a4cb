"""300 texts that are hard to tokenize: scripts, emoji, whitespace, control and special tokens.

``texts()`` always gives the same list; tests/data/real has llama.cpp's token ids.
"""

from __future__ import annotations

import random
import string
from pathlib import Path

LANGUAGES = """\
The quick brown fox jumps over the lazy dog; it's 3 o'clock, isn't it?
WE'LL SEE: I'D SAY THEY'RE RIGHT, BUT SHE'S NOT. Don't YOU'VE i'm
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.
Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft
Voix ambiguë d’un cœur qui, au zéphyr, préfère les jattes de kiwis.
El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío.
¿Qué? ¡Añoraba! «Él dijo: ‘¡no!’»
Luís argüia à Júlia que «brações, fé, chá, óxido, pôr, zângão» eram palavras.
Quel vituperabile xenofobo zelante assaggia il whisky ed esclama: alleluja!
Pchnąć w tę łódź jeża lub ośm skrzyń fig.
Příliš žluťoučký kůň úpěl ďábelské ódy.
Árvíztűrő tükörfúrógép, jó foxim és don Quijote húszwattos lámpánál ülve.
Pijamalı hasta yağız şoföre çabucak güvendi. İstanbul'da ığdır
Flygande bäckasiner söka hwila på mjuka tuvor.
Høj bly gom vandt fræk sexquiz på wc. Blåbærsyltetøy!
Törkylempijävongahdus; hyvää yötä.
Kæmi ný öxi hér, ykist þjófum nú bæði víl og ádrepa.
Muzicologă în bej vând whisky și tequila, preț fix.
Vỡi người Việt Nam, tiếng Việt là tiếng mẹ đẻ; đường phố Hà Nội.
Kan jy my asseblief help? Dankie, môre is 'n vakansiedag.
Съешь же ещё этих мягких французских булок, да выпей чаю.
Жебракують філософи при ґанку церкви в Гадячі, ще й шатро їхнє п'яне знаємо.
Ах, чудна българска земьо, полюшвай цъфтящи жита.
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΟΔΥΣΣΕΎΣ
עטלף אבק נס דרך מזגן שהתפוצץ כי חם. שָׁלוֹם עֲלֵיכֶם
نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر.
ٱلسَّلَامُ عَلَيْكُمْ وَرَحْمَةُ ٱللَّهِ
یک روباه قهوه‌ای چابک از روی سگ تنبل می‌پرد.
ٹھنڈ میں، ایک قحط زدہ گاؤں سے گذرتے وقت
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले
আমি বাংলায় গান গাই, আমি বাংলার গান গাই।
யாமறிந்த மொழிகளிலே தமிழ்மொழி போல் இனிதாவது எங்கும் காணோம்
తెలుగు భాష మధురమైనది; దేశభాషలందు తెలుగు లెస్స.
ಕನ್ನಡ ನಾಡು ನುಡಿ, ಸಿರಿಗನ್ನಡಂ ಗೆಲ್ಗೆ
മലയാളം എന്റെ മാതൃഭാഷയാണ്.
ਪੰਜਾਬੀ ਬੋਲੀ ਬਹੁਤ ਮਿੱਠੀ ਹੈ।
ગુજરાતી ભાષા ખૂબ સુંદર છે.
සිංහල භාෂාව ශ්‍රී ලංකාවේ කතා කරයි.
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน
ສະບາຍດີ ຂ້ອຍເວົ້າພາສາລາວ
ភាសាខ្មែរពិរោះណាស់
မြန်မာဘာသာစကားသည် လှပသည်။
བོད་སྐད་ཡག་པོ་འདུག
ქართული ენა ძალიან ლამაზია. ᲥᲐᲠᲗᲣᲚᲘ
Բոլոր մարդիկ ծնվում են ազատ ու հավասար։
ሰው ሁሉ ነጻ ሆኖ ተወልዷል፤
いろはにほへと ちりぬるを わかよたれそ つねならむ
東京都は、日本の首都である。カタカナとﾊﾝｶｸ文字、ＡＢＣ１２３。
天地玄黃，宇宙洪荒。日月盈昃，辰宿列張。
我能吞下玻璃而不伤身体。“你好”，他说：《红楼梦》……
𠀀𠀁𠮷野家 𪚥 㐀㐁
다람쥐 헌 쳇바퀴에 타고파. 한국어 ㅋㅋㅋ ㅠㅠ
각 한글
Монгол хэл бол сайхан хэл юм. ᠮᠣᠩᠭᠣᠯ
Nhà nước Tiếng Việt
ᚠᚢᚦᚨᚱᚲ ᛒᛖᚨᚹ 𐌰𐌱𐌲 𐎀𐎁 𓀀𓀁 ꧋ꦗꦮ꧋
ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ᐃᓄᒃᑎᑐᑦ
Ẓ̌á̲l͔̝̞̄̑͌g̖̘̘̔̔͢͞ỏ Z̸̢̛a̷l̵g̶o
Esperanto: Eĥoŝanĝo ĉiuĵaŭde. Ŝajnas ke sagaca monaĥo laŭtvoĉe
O‘zbek tili; Qazaq tili — Қазақ тілі, Тоҷикӣ""".splitlines()

EMOJI = """\
😀😃😄😁😆
👍🏻👍🏼👍🏽👍🏾👍🏿
👨‍👩‍👧‍👦 👩‍❤️‍💋‍👨 🏳️‍🌈 🏴‍☠️
🇩🇪🇫🇷🇯🇵🇺🇸 🏴󠁧󠁢󠁥󠁮󠁧󠁿
1️⃣2️⃣#️⃣*️⃣
I ❤ U vs I ❤️ U
🤷🏽‍♀️ shrug 🤦‍♂️!
🥲🫠🫡🪿🫨🩷
text😀text 😀 text
☀☁☂★☎☑♠♥♻⚡⛄✈✉✓
🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀
(╯°□°)╯︵ ┻━┻ ʕ•ᴥ•ʔ ¯\\_(ツ)_/¯
⠓⠑⠇⠇⠕ ♔♕ 🀄🂡 𝄞𝄢
→←↑↓⇒⇔∀∃∈∑∏√∞≠≤≥""".splitlines()

CODE = [
    'def f(x: int) -> str:\n    """Doc."""\n    return f"{x!r:>10}" if x else "\\n"\n',
    "class A(B):\n\tdef __init__(self, *args, **kwargs):\n\t\tsuper().__init__()\n",
    '#include <stdio.h>\nint main(void) { printf("%d\\n", 0x7fULL << 3); return 0; }\n',
    "for (let i = 0; i < n; ++i) { a[i] ??= b?.c ?? `x${i}`; } // ok",
    'fn main() -> Result<(), Box<dyn Error>> { let x: &\'static str = r#"raw"#; Ok(()) }',
    "SELECT a.*, COUNT(*) AS n FROM t1 a LEFT JOIN t2 b ON a.id=b.id WHERE x<>'it''s' GROUP BY 1;",
    "<!DOCTYPE html><table><tr><td>&nbsp;</td></tr></table><h1>Hi</h1><br/><b>x</b><ul><li>",
    '{"a": [1, 2.5e-10, null, true], "b": {"c": "\\u00e9\\n"}}',
    "key: value\nlist:\n  - a\n  - b: |\n      text\n# end\n",
    "grep -rnE '^[a-z]+\\s*=' ./src | awk '{print $2}' | sort -u > /dev/null 2>&1 && echo $?",
    "\\begin{equation} \\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2} \\end{equation}",
    "@@ -1,3 +1,4 @@\n-old line\n+new line\n context\r\n",
    "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
    "https://user:pass@example.com:8080/a/b/../c?q=1&r=%20%C3%A9#frag",
    "C:\\Windows\\System32\\drivers\\etc\\hosts",
    "module X where\nimport qualified Data.Map as M\nf = \\x -> case x of { _ -> Nothing }",
    "if\t(x)\n\t\t\treturn\t;\n        else\n            pass\n\n\n\n    end",
    "camelCaseIdentifier snake_case_identifier SCREAMING_CASE kebab-case __dunder__ $var @attr",
    "MOV EAX, [EBX+4*ECX-0x10]\nJMP .L1\n; comment",
    "<?php echo $a['x'] . \"$b\\t\"; ?>",
]

NUMBERS = """\
0 1 12 123 1234 12345 123456 1234567 12345678901234567890
3.14159 -2.718e+10 1,234,567.89 1_000_000 0xDEADBEEF 0b1010 ½ ¾ ² ³ ₁ ①② Ⅷ
١٢٣٤٥ ०१२३ 一二三 １２３
2026-11-25T23:59:59Z 12:30pm 50% $9.99 €5 £3 ¥100 +49-30-123456
!!!??? ... …… --- ___ *** ~~~ ### @@@ &&& ((())) [[{{}}]] <<>> "'`´“”‘’„‚«»
a.b,c;d:e!f?g/h\\i|j-k_l+m=n*o&p^q%r$s#t@u~v
naïve café (NFC) vs naïve café (NFD)
ﬁ ﬂ ﬃ ſ ß ẞ İ ı Ǆ ǅ ǆ K Å Ω µ μ
ｆｕｌｌｗｉｄｔｈ 𝓈𝒸𝓇𝒾𝓅𝓉 𝔽𝕣𝕒𝕜 𝟘𝟙𝟚 ᵃᵇᶜ
It's 'quoted' ''double'' 'S 'T 'RE 'VE 'M 'LL 'D 's't
I’m you’re he’s DON’T’VE
Ünïcödé'll Éa's 123's _'s""".splitlines()

MARKS = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<reponame>", "<file_sep>",
    "<filename>", "<gh_stars>", "<issue_start>", "<jupyter_start>", "<empty_output>", "<bos>",
    "<eos>", "<pad>", "<unk>", "<mask>", "<2mass>", "[@BOS@]", "<unused0>", "<unused42>",
    "<unused99>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<image_soft_token>",
    "<table>", "</td>", "<h1>", "<blockquote>", "<0x0A>", "<0xFF>", "<s>", "</s>", "[CLS]",
    "[multimodal]", "<|user|>", "▁", "▁▁▁", "Ġ", "Ċ", "Ġthe", "[toxicity=0]",
)  # fmt: skip

SPACES = (" ", "\t", "\n", "\r\n", "\r", "\u00a0", "\u3000", "\u2003", "\v", "\f", "\u2028", "\x85")

CONTROLS = (
    "\x00", "a\x00b", "\x01\x02\x03", "\x07bell\x08back", "\x1b[31mred\x1b[0m", "\x7f\x80\x9f",
    "\ufeffBOM", "zero\u200bwidth\u200cnon\u200djoiner\u2060", "\u202eoverride\u202c \u2066x\u2069",
    "soft\u00adhyphen", "\ufffd\ufffc", "\ue000\uf8ff private", "\ufffe\uffff non",
    "\U0001fffe\U0010ffff", "\u0378\u0380 unassigned", "\u0301\u0301 marks first", "e\u0301" * 20,
    "a" + "\u0300" * 60, "\U000e0001\U000e0061 tags", "\ufe0f\ufe0e selectors",
)  # fmt: skip

POOLS = (
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    "   \t\n",
    ".,;:!?'\"-_()[]{}<>|/\\",
    "äöüßéèñçøåæœ",
    "абвгдежзАБВ",
    "αβγδΑΒΓ",
    "אבגדה",
    "ابتثج",
    "कखगघािीु",
    "日本語中文漢字",
    "ひらがなカタカナ",
    "한국어조선",
    "กขฃคฅฆ",
    "😀🎉🚀👍🏽\u200d❤\ufe0f",
    "\u0300\u0301\u0302\u0308",
    "²³½①Ⅷ",
    "\u200b\u200d\u00ad\ufeff",
)


def long_words() -> list[str]:
    """Words without a space, of up to 5000 characters."""
    draw = random.Random(1)
    return [
        "a" * 5000, "ab" * 1500, "xyz" * 100, "0" * 1000, "1234567890" * 200, "=" * 777, "-" * 300,
        "é" * 500, "日" * 400, "漢字" * 300, "กา" * 200, "😀" * 200, "ا" * 300, "!?" * 400,
        "".join(draw.choices("ACGT", k=2000)), "".join(draw.choices("0123456789abcdef", k=1024)),
        "".join(draw.choices(string.ascii_letters + string.digits + "+/", k=1500)),
        "honorificabilitudinitatibus" * 20, "Rindfleischetikettierungsüberwachungsaufgabe" * 9,
        "_".join(["word"] * 200), "HTTP" * 50 + "Server" * 50, "a" * 511 + " " + "b" * 513,
    ]  # fmt: skip


def whitespace() -> list[str]:
    """Runs of whitespace, alone, before, between and after words."""
    runs = [space * count for space in SPACES for count in (1, 3)]
    mixed = [" \n", "\n \n", "  \n\n\t ", "\n\n\n\n\n", " " * 40, "\t" * 20, "\n" * 35, " \u3000 "]
    return [
        *(f"a{run}b" for run in runs), *(f"{run}x{run}" for run in mixed), "", " ", "  ", "\n",
        "\n\n", " a", "a ", "  a  b   c    d     e", "a\n b\n  c\n   d",
    ]  # fmt: skip


def special() -> list[str]:
    """Texts with the text of special tokens, whole, nested and cut."""
    return [
        *(f"see {mark}here {mark} {mark}" for mark in MARKS),
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
        "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n",
        "<|im_start|<|im_start|>|>", "<|im_st", "|im_end|>", "<start_of_<eos>turn>", "<<eos>>",
        "<|endoftext|><|endoftext|>", "  <|im_end|>  x", "\n\n<eos>\n\n\n", "<EOS> <|IM_START|>",
        "<|im_start |>",
    ]  # fmt: skip


def drawn(count: int) -> list[str]:
    """Random sequences of characters of several scripts."""
    draw = random.Random(2)
    found = []
    for _ in range(count):
        pools = draw.sample(POOLS, draw.randint(2, 6))
        parts = ["".join(draw.choices(draw.choice(pools), k=draw.randint(1, 5))) for _ in range(12)]
        found.append("".join(parts))
    return found


def texts() -> list[str]:
    """The 300 texts."""
    fixed = [
        *LANGUAGES, *EMOJI, *CODE, *NUMBERS, *CONTROLS, *long_words(), *whitespace(), *special(),
    ]  # fmt: skip
    return [*fixed, *drawn(300 - len(fixed))]


def prose() -> str:
    """A text of some thousand tokens to be predicted: the licence, then many languages and code."""
    licence = (Path(__file__).parents[2] / "LICENSE").read_text("utf-8")
    return "\n".join([licence, *LANGUAGES, *CODE, *NUMBERS])
