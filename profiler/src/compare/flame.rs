//! A differential flame graph: boxes are as wide as the CPU time of the second run; red ones take more of it than
//! before, blue ones less.

use std::io::{self, Write};

use flowtrace_render::markup::Markup;
use flowtrace_render::units::{duration, plain, shorten};

use super::functions::Functions;

const WIDTH: f64 = 1100.0;
const ROW: f64 = 18.0;
/// Narrower boxes are not drawn.
const LEAST: f64 = 0.6;
/// Width of a letter, about.
const LETTER: f64 = 6.6;

pub(super) fn write(functions: &Functions, html: &mut Markup<impl Write>) -> io::Result<()> {
    let (a, b) = functions.all_ns;
    // A function that is gone has a place as wide as its time before.
    let weight = |at: usize| functions.boxes[at].a_ns.max(functions.boxes[at].b_ns);
    let mut children = vec![Vec::new(); functions.boxes.len() + 1];
    for (place, one) in functions.boxes.iter().enumerate() {
        children[one.caller.map_or(0, |caller| caller + 1)].push(place);
    }
    let total: f64 = children[0].iter().map(|&at| weight(at)).sum();
    let mut drawn: Vec<(usize, usize, f64, f64)> = Vec::new();
    let mut waiting = vec![(None, 0, 0.0, WIDTH)];
    let mut deepest = 0;
    while let Some((node, depth, x, width)) = waiting.pop() {
        let below = &children[node.map_or(0, |node: usize| node + 1)];
        let own: f64 = below.iter().map(|&at| weight(at)).sum();
        // Of two sides the parts may be wider than the whole.
        let whole = node.map_or(total, weight).max(own).max(1.0);
        let mut from = x;
        for &child in below {
            let wide = width * weight(child) / whole;
            if wide >= LEAST {
                drawn.push((child, depth, from, wide));
                deepest = deepest.max(depth + 1);
                waiting.push((Some(child), depth + 1, from, wide));
            }
            from += wide;
        }
    }
    let height = deepest as f64 * ROW;
    html.leaf("h2", &[], "Functions")?;
    let words = format!(
        "CPU time by sampled call stacks: {} before, {} after. A box is as wide as its time; red takes more than before, blue less.",
        duration(a as i64),
        duration(b as i64)
    );
    html.leaf("p", &[], &words)?;
    let view = format!("0 0 {WIDTH} {height}");
    html.open(
        "svg",
        &[
            ("viewBox", &view),
            ("role", &"img"),
            ("aria-label", &"differential flame graph"),
            ("style", &"width:100%;font:11px system-ui,sans-serif"),
        ],
    )?;
    for (node, depth, x, width) in drawn {
        let one = &functions.boxes[node];
        let y = height - (depth + 1) as f64 * ROW;
        html.open("g", &[])?;
        let title = format!(
            "{}: {} → {}",
            plain(&one.name),
            duration(one.a_ns as i64),
            duration(one.b_ns as i64)
        );
        html.leaf("title", &[], &title)?;
        let at = |value: f64| format!("{value:.1}");
        html.empty(
            "rect",
            &[
                ("x", &at(x)),
                ("y", &at(y)),
                ("width", &at((width - 0.5).max(0.5))),
                ("height", &at(ROW - 1.0)),
                ("fill", &colour(one.a_ns, one.b_ns, a.max(b))),
            ],
        )?;
        let letters = ((width - 6.0) / LETTER) as usize;
        if letters >= 3 {
            let position = [
                ("x", &at(x + 3.0) as &dyn std::fmt::Display),
                ("y", &at(y + 13.0)),
                ("fill", &"#14171a"),
            ];
            html.leaf("text", &position, shorten(&plain(&one.name), letters))?;
        }
        html.close()?;
    }
    html.close()
}

/// Grey for no difference; full red or blue for a tenth of all CPU time.
fn colour(a_ns: f64, b_ns: f64, all_ns: f64) -> String {
    let share = ((b_ns - a_ns) / all_ns.max(1.0) * 10.0).clamp(-1.0, 1.0);
    let hue = if share > 0.0 { 28 } else { 250 };
    let strength = share.abs();
    format!(
        "oklch({:.2} {:.3} {hue})",
        0.88 - 0.14 * strength,
        0.15 * strength
    )
}
