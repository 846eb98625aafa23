//! Ids that this crate assigns. None is ever reused within a database; 0 is never assigned.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize,
        )]
        pub struct $name(pub u32);

        impl From<$name> for i64 {
            fn from(id: $name) -> i64 {
                i64::from(id.0)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A process image. Pids are recycled by the kernel, upids are not.
    Upid
}
id! {
    /// A file: an inode, not a path. Assigned in sequence: the writer keeps a list indexed by them.
    FileId
}
id! {
    /// A pipe, FIFO or socket.
    ChannelId
}
id! {
    /// A place where packets were captured, as one interface.
    CaptureId
}
id! {
    /// Packets of one address and port pair in both directions.
    FlowId
}
id! {
    /// A machine.
    HostId
}
id! {
    /// A recording.
    RunId
}
id! {
    /// A thread id as the kernel gave it. Recycled; meaningful together with a [`Upid`].
    Tid
}
