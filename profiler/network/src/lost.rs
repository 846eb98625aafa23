//! Losses of a trace that concern its packets.

use flowtrace_schema::{Result, Severity, Trace};

use flowtrace_render::units;

/// The losses that make sums of packets too small, as lines, the worst first.
///
/// # Errors
/// When the file cannot be read.
pub fn notes(trace: &Trace) -> Result<Vec<String>> {
    let losses = trace.losses()?.into_iter().filter(|loss| {
        let is_about_packets = matches!(loss.source.as_str(), "packets" | "store");
        let is_serious = [Severity::DataLoss, Severity::Error]
            .iter()
            .any(|s| s.name() == loss.severity);
        is_about_packets && is_serious && loss.value > 0
    });
    let mut notes: Vec<String> = losses
        .map(|loss| format!("lost: {} × {}", units::count(loss.value), loss.meaning))
        .collect();
    if !notes.is_empty() {
        notes.push("sums are too small, and iterations may be missed".into());
    }
    Ok(notes)
}
