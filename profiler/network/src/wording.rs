//! Numbers and lists in sentences.

use flowtrace_render::units;

/// A duration that need not be a whole number of nanoseconds.
pub fn seconds(s: f64) -> String {
    if !s.is_finite() {
        return "unknown".into();
    }
    // Three digits where summaries have two, since rates are compared.
    let size = s.abs();
    match size {
        _ if size == 0.0 => "0 s".into(),
        _ if size < 1e-3 => format!("{} µs", number(s * 1e6)),
        _ if size < 1.0 => format!("{} ms", number(s * 1e3)),
        _ if size < 60.0 => format!("{} s", number(s)),
        _ => units::duration((s * 1e9) as i64),
    }
}

/// Three or four significant digits.
pub fn number(x: f64) -> String {
    let size = x.abs();
    match size {
        _ if !x.is_finite() => "∞".into(),
        _ if size == 0.0 => "0".into(),
        _ if size < 0.001 => format!("{x:.2e}"),
        _ if size < 1.0 => format!("{x:.4}"),
        _ if size < 10.0 => format!("{x:.3}"),
        _ if size < 100.0 => format!("{x:.2}"),
        _ if size < 1000.0 => format!("{x:.1}"),
        _ => units::count(x.round() as i64),
    }
}

/// An interval with fitting units: `1.20 to 1.31 s`.
pub fn range(low: f64, high: f64) -> String {
    let (low, high) = (seconds(low), seconds(high));
    if low == high {
        return low;
    }
    match (low.rsplit_once(' '), high.rsplit_once(' ')) {
        (Some((value, a)), Some((_, b))) if a == b => format!("{value} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

/// Most names in a line of text, since a server has thousands of clients. Rows and `coverage` have all.
const LISTED: usize = 10;

/// Names one after the other, and the number of further names.
pub fn listed(names: &[impl AsRef<str>], separator: &str) -> String {
    let shown = names.iter().take(LISTED).map(AsRef::as_ref);
    let shown = shown.collect::<Vec<&str>>().join(separator);
    match names.len().saturating_sub(LISTED) {
        0 => shown,
        more => format!("{shown} and {} more", units::count(more as i64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_names_the_first_are_listed() {
        let names: Vec<String> = (1..=1200).map(|n| format!("n{n}")).collect();
        assert_eq!(listed(&names[..2], " and "), "n1 and n2");
        assert_eq!(listed(&names[..10], ","), "n1,n2,n3,n4,n5,n6,n7,n8,n9,n10");
        let more = format!(", n10 and {} more", units::count(1190));
        assert!(listed(&names, ", ").ends_with(&more));
        assert_eq!(listed(&names[..0], ", "), "");
    }

    #[test]
    fn a_range_has_its_unit_once() {
        assert_eq!(range(1.2, 1.3), "1.200 to 1.300 s");
        assert_eq!(range(0.9, 1.3), "900.0 ms to 1.300 s");
    }
}
