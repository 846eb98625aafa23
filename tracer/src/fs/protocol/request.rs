//! Parsing of requests. Nothing that the kernel sends can make this panic.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::abi::InHeader;

/// A request that does not have the form of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The part of a request that has not been taken yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<'a> {
    rest: &'a [u8],
}

/// Splits a message into header and body.
pub(crate) fn parse(message: &[u8]) -> Result<(InHeader, Body<'_>), Malformed> {
    let (header, rest) = InHeader::read_from_prefix(message).map_err(|_| Malformed)?;
    let extensions = usize::from(header.total_extlen) * 8;
    let length = rest.len().checked_sub(extensions).ok_or(Malformed)?;
    if header.len as usize != message.len() {
        return Err(Malformed);
    }
    let rest = &rest[..length];
    Ok((header, Body { rest }))
}

impl<'a> Body<'a> {
    /// The next argument of fixed size.
    pub(crate) fn take<T: FromBytes + Immutable + KnownLayout>(&mut self) -> Result<T, Malformed> {
        let (argument, rest) = T::read_from_prefix(self.rest).map_err(|_| Malformed)?;
        self.rest = rest;
        Ok(argument)
    }

    /// The next name, which is one component of a path.
    pub(crate) fn name(&mut self) -> Result<&'a OsStr, Malformed> {
        let name = self.text()?;
        // The kernel resolves these; passed on, they would lead out of the directory.
        let leads_away = [&b""[..], b".", b".."].contains(&name.as_bytes());
        if leads_away || name.as_bytes().contains(&b'/') {
            return Err(Malformed);
        }
        Ok(name)
    }

    /// The next text of any kind, which ends with a zero byte.
    pub(crate) fn text(&mut self) -> Result<&'a OsStr, Malformed> {
        let end = self.rest.iter().position(|&byte| byte == 0);
        let end = end.ok_or(Malformed)?;
        let name = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(OsStr::from_bytes(name))
    }

    /// The next `count` bytes.
    pub(crate) fn bytes(&mut self, count: u32) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(count as usize)
            .ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::abi::{MkdirIn, WriteIn};
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    fn message(body: &[u8]) -> Vec<u8> {
        let header = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode: 9,
            unique: 1,
            nodeid: 2,
            uid: 3,
            gid: 4,
            pid: 5,
            total_extlen: 0,
            padding: 0,
        };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn takes_arguments_and_names_in_order() {
        let arguments = MkdirIn {
            mode: 0o755,
            umask: 0o22,
        };
        let body = [arguments.as_bytes(), b"one\0two\0"].concat();
        let message = message(&body);
        let (header, mut body) = parse(&message).unwrap();
        assert_eq!((header.nodeid, header.pid), (2, 5));
        assert_eq!(body.take::<MkdirIn>().unwrap().mode, 0o755);
        assert_eq!(body.name(), Ok(OsStr::new("one")));
        assert_eq!(body.name(), Ok(OsStr::new("two")));
        assert_eq!(body.name(), Err(Malformed));
    }

    #[test]
    fn names_do_not_lead_away() {
        for name in ["", ".", "..", "a/b", "/"] {
            let message = message(format!("{name}\0").as_bytes());
            assert_eq!(parse(&message).unwrap().1.name(), Err(Malformed), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok((_, mut body)) = parse(&bytes) {
                let _ = body.take::<WriteIn>();
                let _ = body.name();
                let _ = body.bytes(10);
            }
            let whole = message(&bytes);
            let (_, mut body) = parse(&whole).unwrap();
            prop_assert_eq!(body.bytes(bytes.len() as u32).unwrap(), &bytes[..]);
            prop_assert_eq!(body.bytes(1), Err(Malformed));
        }
    }
}
