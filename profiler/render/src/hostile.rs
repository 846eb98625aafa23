//! Names that a file or program may have, and that end strings, tags and lines where they are not escaped.

/// These names, as a trace stores them; none has a slash.
pub(crate) const HOSTILE: [&str; 16] = [
    "plain",
    "<b>&amp;\"quoted\"'single'",
    "</text></svg><script>alert(1)</script>",
    "]]><!-- -- --> <?xml?> <![CDATA[",
    "&bogus;&nbsp;&#0;&#xffff;&",
    "\"]; evil -> \\",
    "tail\\",
    "\u{1b}[2J\u{7}\u{8}\u{0c}",
    "line\nfeed\r\ttab",
    "\u{202e}exe.\u{2066}rtl\u{200f}",
    "\u{fffe}\u{ffff}\u{fdd0}\u{1fffe}",
    "\u{80}\u{9f}\u{7f}\u{1}",
    "שלום مرحبا",
    "文件 🗂 e\u{301}",
    "{{title}} %s {0} $(id) `id`",
    " ",
];
