//! Output to a terminal, of any format: a cell of CSV can contain an escape sequence as well as a sentence
//! can.

use std::io::{self, Write};

use flowtrace_render::units::plain_lines;

/// Bytes that wait for the end of their line.
const LONGEST: usize = 1 << 16;
/// The colours that flowtrace itself uses.
const COLOURS: [&str; 4] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[33m"];

/// Writes text without control characters and escape sequences, except the colours of flowtrace.
#[derive(Debug)]
pub(super) struct Shown<W> {
    out: W,
    waiting: Vec<u8>,
}

impl<W: Write> Shown<W> {
    pub(super) fn new(out: W) -> Shown<W> {
        let waiting = Vec::new();
        Shown { out, waiting }
    }

    fn pass(&mut self, end: usize) -> io::Result<()> {
        let text = String::from_utf8_lossy(&self.waiting[..end]);
        self.out.write_all(shown(&text).as_bytes())?;
        self.waiting.drain(..end);
        Ok(())
    }
}

impl<W: Write> Write for Shown<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        let ended = self.waiting.iter().rposition(|&byte| byte == b'\n');
        match ended {
            Some(at) => self.pass(at + 1)?,
            None if self.waiting.len() > LONGEST => self.pass(self.waiting.len())?,
            None => {}
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass(self.waiting.len())?;
        self.out.flush()
    }
}

fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        shown += &plain_lines(&rest[..at]);
        rest = &rest[at..];
        let colour = COLOURS.iter().find(|colour| rest.starts_with(**colour));
        let escape = colour.map_or("\x1b", |colour| colour);
        shown += &colour.map_or_else(|| plain_lines(escape), |colour| (*colour).to_owned());
        rest = &rest[escape.len()..];
    }
    shown + &plain_lines(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_colours_reach_a_terminal() {
        let mut out = Vec::new();
        let mut shown = Shown::new(&mut out);
        for part in [
            "\x1b[1mtrue\x1b[0m\n\x1b[",
            "2J\tä\u{9b}\x1b]0;x\x07\r\n",
            "\u{202e}end",
        ] {
            shown.write_all(part.as_bytes()).unwrap();
        }
        shown.flush().unwrap();
        let text = String::from_utf8(out).unwrap();
        let r = '\u{fffd}';
        assert_eq!(
            text,
            format!("\x1b[1mtrue\x1b[0m\n{r}[2J\tä{r}{r}]0;x{r}{r}\n{r}end")
        );
    }
}
