//! A run whose processes are followed without ptrace.

use flowtrace_schema::Text;

use super::super::launch::Calls;
use super::super::recording::HOST;
use super::super::{Error, Result};
use super::{Background, Notice, Run, Started};
use crate::proc::children;
use crate::proc::lifetimes::End;
use crate::proc::reading::Image;
use crate::proc::watched::{Watched, Whose};

impl Run<'_> {
    /// Follows the command by what the kernel announces. ptrace was not wanted or, with the
    /// reason, refused.
    pub(super) fn watched(
        &self,
        mut started: Started<'_>,
        refused: Option<String>,
    ) -> Result<(End, Option<Background>)> {
        let root = started.job.root.as_raw() as u32;
        // Nobody is held here, so nobody can be let go: the last process is waited for.
        started.job.detach = false;
        let streams = &started.inherited.streams;
        let start = started.views.start(self.cwd, streams, self.directories);
        children::adopt_orphans().map_err(Error::system("become the parent of orphans"))?;
        let recording = started.recording;
        let recorder = recording.recorder.clone();
        let watched = Watched::start(
            Whose::Ours { root },
            HOST,
            recording.clock,
            recorder,
            self.options.environment.clone(),
        );
        (started.job.notify)(Notice::NotTraced {
            refused,
            layer: watched.layer(),
            has_costs: watched.has_costs(),
        });
        let served = self.serve(&mut started, watched.clone(), watched.layer())?;
        let arguments = self.options.command.iter();
        let argv = arguments.flat_map(|a| [a.as_encoded_bytes(), b"\0"].concat());
        let exe = self.program.canonicalize().ok();
        let image = Image {
            exe: exe.map(|path| Text::from(path.as_path())),
            argv: Some(argv.collect()),
            cwd: Some(Text::from(start.directory.as_path())),
            ..Image::default()
        };
        watched.launch(root, image);
        if let Some(namespaces) = &started.namespaces {
            namespaces.follow(watched.living());
        }
        let host_sampler = recording.host_sampler(self.options.host_hertz, None);
        self.go_on(&mut started, &start, watched.living(), Calls::Free)?;
        let end = watched.follow(root, &mut started.job);
        drop(host_sampler);
        self.conclude(started, served, end)
    }
}
