//! Plots made of characters.

/// An eighth of a character for each eighth of a share from 0 to 1.
pub fn eighth(share: f64) -> char {
    const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    LEVELS[((share.clamp(0.0, 1.0) * 8.0).round() as usize).min(8)]
}

/// Columns as high as their shares from 0 to 1, in so many rows, the uppermost first.
pub fn rows(columns: &[f64], height: usize) -> Vec<String> {
    let row = |row: usize| {
        let below = (height - 1 - row) as f64;
        let column = |share: &f64| eighth(share * height as f64 - below);
        columns.iter().map(column).collect()
    };
    (0..height).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_fills_rows_from_below() {
        let columns = [0.0, 0.25, 0.5, 0.75, 1.0, -1.0, 2.0];
        assert_eq!(rows(&columns, 2), ["   ▄█ █", " ▄███ █"]);
    }
}
