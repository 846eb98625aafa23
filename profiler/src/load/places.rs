//! From ids of the database to places in the model, quick enough for every file call.

use std::collections::HashMap;

use crate::model::{FileIndex, ProcessId, Workflow};

/// Map from ids to places. Ids are counted from 1 with few gaps, in sound traces.
#[derive(Debug)]
enum Map {
    Dense(Vec<u32>),
    Sparse(HashMap<i64, u32>),
}

const NONE: u32 = u32::MAX;

impl Map {
    fn of(ids: impl Iterator<Item = (i64, u32)> + Clone) -> Map {
        let count = ids.clone().count() as i64;
        let last = ids.clone().map(|(id, _)| id).max().unwrap_or(0);
        let first = ids.clone().map(|(id, _)| id).min().unwrap_or(0);
        if first < 0 || last > count.saturating_mul(8).saturating_add(1024) {
            return Map::Sparse(ids.collect());
        }
        let mut places = vec![NONE; last as usize + 1];
        for (id, place) in ids {
            places[id as usize] = place;
        }
        Map::Dense(places)
    }

    fn get(&self, id: i64) -> Option<u32> {
        let place = match self {
            Map::Dense(places) => *places.get(usize::try_from(id).ok()?)?,
            Map::Sparse(places) => *places.get(&id)?,
        };
        (place != NONE).then_some(place)
    }
}

/// The places of the processes and files of a workflow.
#[derive(Debug)]
pub(crate) struct Places {
    images: Map,
    processes: Map,
    files: Map,
}

impl Places {
    pub(crate) fn of(workflow: &Workflow) -> Places {
        let images = workflow.images.iter();
        let places = images.clone().enumerate();
        let files = workflow.files.iter().enumerate();
        Places {
            images: Map::of(places.map(|(place, image)| (image.upid, place as u32))),
            processes: Map::of(images.map(|image| (image.upid, image.process.0))),
            files: Map::of(files.map(|(place, file)| (file.file_id, place as u32))),
        }
    }

    /// Place of an image in [`Workflow::images`].
    pub(crate) fn image(&self, upid: i64) -> Option<usize> {
        self.images.get(upid).map(|place| place as usize)
    }

    /// The process of an image.
    pub(crate) fn process(&self, upid: i64) -> Option<ProcessId> {
        self.processes.get(upid).map(ProcessId)
    }

    /// A file by its id.
    pub(crate) fn file(&self, file_id: i64) -> Option<FileIndex> {
        self.files.get(file_id).map(FileIndex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_with_gaps_are_found_too() {
        for ids in [vec![1, 2, 5], vec![3, i64::MAX], vec![-4, 7]] {
            let map = Map::of(ids.iter().copied().zip(0..));
            for (place, &id) in ids.iter().enumerate() {
                assert_eq!(map.get(id), Some(place as u32));
            }
            assert_eq!(map.get(4), None);
            assert_eq!(map.get(-1), None);
        }
    }
}
