//! Pictures through Graphviz, where it is installed.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use clap::ValueEnum;
use flowtrace_render::plot::{self, Picture};

use crate::failure::Failure;

/// Placement of nodes by Graphviz.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Layout {
    /// A directed graph from top to bottom.
    Dot,
    /// Everything is placed already.
    Placed,
}

/// Pictures that Graphviz makes, as the values of `--format` and Graphviz itself call them.
const PICTURES: [&str; 5] = ["svg", "png", "jpeg", "pdf", "ps"];

/// Graphviz' name of a format, if that is a picture.
pub(crate) fn picture(format: &impl ValueEnum) -> Option<&'static str> {
    let value = format.to_possible_value()?;
    PICTURES.into_iter().find(|name| value.matches(name, false))
}

/// Plots as `svg`, which needs no Graphviz, or as another picture.
pub(crate) fn plot(picture: &Picture, format: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    if format == "svg" {
        plot::write_svg(picture, &mut bytes)?;
        return Ok(bytes);
    }
    plot::write_dot(picture, &mut bytes)?;
    render(&bytes, Layout::Placed, format)
}

/// Has Graphviz turn its own language into a [`picture`].
pub(crate) fn render(dot: &[u8], layout: Layout, format: &str) -> Result<Vec<u8>, Failure> {
    let (program, arguments) = match layout {
        Layout::Dot => ("dot", &[][..]),
        Layout::Placed => ("neato", &["-n2"][..]),
    };
    let child = Command::new(program)
        .args(arguments)
        .arg(format!("-T{format}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| cannot_start(program, format, &error))?;
    let Some(mut stdin) = child.stdin.take() else {
        return Err(Failure::new(1, "Graphviz takes no input"));
    };
    // Graphviz reads everything before it writes, but may write warnings meanwhile.
    let (output, written) = std::thread::scope(|scope| {
        let writer = scope.spawn(move || stdin.write_all(dot));
        let output = child.wait_with_output();
        (output, writer.join())
    });
    let output =
        output.map_err(|error| Failure::new(1, format!("cannot run {program}: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || !matches!(written, Ok(Ok(()))) {
        return Err(Failure::new(
            1,
            format!(
                "{program} could not make the picture: {}",
                said.lines().next().unwrap_or("it said nothing")
            ),
        )
        .hint("the same graph with --format dot, or a smaller one with --max-nodes"));
    }
    Ok(output.stdout)
}

fn cannot_start(program: &str, format: &str, error: &io::Error) -> Failure {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "it is not installed".into(),
        _ => error.to_string(),
    };
    Failure::usage(format!("{format} is made by {program} of Graphviz: {why}")).hint(
        "apt-get install graphviz, or write --format dot and turn it into a picture elsewhere",
    )
}
