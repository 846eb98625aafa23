//! What the programs are to record of each call on files.

use super::super::syscalls::{At, Data, Does, Length, Moves, Numbers, Obscures};
use super::layout::{
    ACTS, CALL_ARGUMENTS, COMMANDS, LOCK, MESSAGE, MESSAGES, MINUS_ONE_IS_POSITION, MOVES_DATA,
    NAMES_FILE, NO_ARGUMENT, NUMBERS, PLACE_IS_OFFSET, VECTOR, WRITES,
};
use crate::file_calls::{ByDescriptor, How};
use crate::proc::tracepoints::on_name;

/// How a call uses files (`struct call_arguments` of tracer/bpf/events.h).
struct Arguments {
    how: u16,
    first: u8,
    second: u8,
    place: u8,
    second_place: u8,
    length: u8,
    flags: u8,
    more_flags: u8,
    commands: u64,
}

const NONE: Arguments = Arguments {
    how: 0,
    first: 0,
    second: NO_ARGUMENT,
    place: NO_ARGUMENT,
    second_place: NO_ARGUMENT,
    length: NO_ARGUMENT,
    flags: NO_ARGUMENT,
    more_flags: NO_ARGUMENT,
    commands: 0,
};

/// A call that only begins there: another program reports it when it returns.
const ON_NAME: Arguments = Arguments {
    how: NAMES_FILE,
    ..NONE
};

/// How each call uses files, by number: first those of this architecture, then those of the other.
pub(super) fn calls() -> Vec<u8> {
    let mut all = vec![0; 2 * NUMBERS * CALL_ARGUMENTS];
    let on_names = (0..2 * NUMBERS).filter(|&number| on_name(number).is_some());
    let on_names = on_names.map(|number| (number, ON_NAME));
    let numbers = Numbers::new();
    let on_descriptors = numbers
        .all()
        .map(|(number, does)| (number, arguments(does)));
    for (number, arguments) in on_names.chain(on_descriptors) {
        let place = number * CALL_ARGUMENTS;
        all[place..][..CALL_ARGUMENTS].copy_from_slice(&arguments.bytes());
    }
    all
}

impl Arguments {
    fn bytes(&self) -> [u8; CALL_ARGUMENTS] {
        let mut bytes = [0; CALL_ARGUMENTS];
        bytes[..2].copy_from_slice(&self.how.to_ne_bytes());
        let arguments = [
            self.first,
            self.second,
            self.place,
            self.second_place,
            self.length,
            self.flags,
            self.more_flags,
        ];
        bytes[2..][..arguments.len()].copy_from_slice(&arguments);
        bytes[COMMANDS..].copy_from_slice(&self.commands.to_ne_bytes());
        bytes
    }
}

fn arguments(does: Does) -> Arguments {
    let at = |argument: Option<usize>| argument.map_or(NO_ARGUMENT, |at| at as u8);
    match does {
        Does::Data(Data {
            writes,
            length,
            at: place,
            flags,
            socket: _,
        }) => {
            let (by_length, length) = of_length(length);
            let (by_place, place) = match place {
                At::Position => (0, None),
                At::Argument(at) => (PLACE_IS_OFFSET, Some(at)),
                At::ArgumentOrPosition(at) => (PLACE_IS_OFFSET | MINUS_ONE_IS_POSITION, Some(at)),
            };
            let writes = if writes { WRITES } else { 0 };
            Arguments {
                how: MOVES_DATA | by_length | by_place | writes,
                place: at(place),
                length: at(length),
                flags: at(flags),
                ..NONE
            }
        }
        Does::Moves(Moves {
            from,
            from_offset,
            to,
            to_offset,
            length,
            ..
        }) => Arguments {
            how: MOVES_DATA,
            first: from as u8,
            second: to as u8,
            place: at(from_offset),
            second_place: at(to_offset),
            length: length as u8,
            ..NONE
        },
        Does::Acts(&ByDescriptor {
            descriptor,
            offset,
            length,
            flags,
            more_flags,
            commands,
            how,
            ..
        }) => {
            let how = match how {
                How::Plain => 0,
                How::ByEmptyName => NAMES_FILE,
                How::Lock => LOCK,
            };
            Arguments {
                how: ACTS | PLACE_IS_OFFSET | how,
                first: descriptor,
                place: offset,
                length,
                flags,
                more_flags,
                commands,
                ..NONE
            }
        }
        Does::Obscures(Obscures { second, length }) => {
            let (by_length, length) = of_length(length);
            Arguments {
                how: MOVES_DATA | by_length,
                second: at(second),
                length: at(length),
                ..NONE
            }
        }
    }
}

/// The flag of a length, and the argument that has it.
fn of_length(length: Length) -> (u16, Option<usize>) {
    match length {
        Length::Argument(at) => (0, Some(at)),
        Length::Vector => (VECTOR, Some(1)),
        Length::Message => (MESSAGE, Some(1)),
        Length::Unknown => (MESSAGES, None),
    }
}
