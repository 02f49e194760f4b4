//! The exchange with the owner, from connecting to mapped ranges.

use crate::device::{ComputeDevice, MappedRange};
use crate::error::ImportError;
use ds4_manifest::{Trust, WeightsManifest};
use ds4_wire::{
    Connection, Deadline, Event, FDS_PER_MESSAGE_MAX, Hello, PROTO_MAX, PROTO_MIN, Phase, RangeSize, Reply, Request,
    Want, WireError, raise_fd_limit,
};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the owner has for each answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Descriptors of a worker beside those of one batch.
const FDS_BESIDE_BATCH: u64 = 64;

/// A connection that is a lease, and what came over it.
pub(crate) struct Received {
    pub(crate) connection: Connection,
    /// In order of id.
    pub(crate) mappings: Vec<MappedRange>,
    /// Whether the owner has begun to shut down in the meantime.
    pub(crate) draining: bool,
}

/// Who asks, and for what.
pub(crate) struct Ask<'a> {
    pub(crate) worker_id: &'a str,
    pub(crate) model: &'a str,
    pub(crate) device: &'a ComputeDevice,
    pub(crate) trust: &'a Trust,
}

/// Attaches to the owner that `manifest` names and maps all its ranges. Everything is unmapped again on an error.
pub(crate) fn receive(path: &Path, manifest: &WeightsManifest, ask: &Ask<'_>) -> Result<Received, ImportError> {
    check_fd_limit(manifest.ranges.len())?;
    let connection = connect(path, manifest, ask.trust)?;
    let mut exchange = Exchange { connection, draining: false };
    exchange.hello(manifest, ask)?;
    exchange.check_ranges(manifest)?;
    let mappings = exchange.map_all(manifest, ask.device)?;
    Ok(Received { connection: exchange.connection, mappings, draining: exchange.draining })
}

/// Tells the owner that everything is mapped. `draining` becomes true if the owner says so.
pub(crate) fn confirm(connection: &Connection, imported_bytes: u64, draining: &mut bool) -> Result<(), ImportError> {
    let on_event = |Event::Draining { .. }| *draining = true;
    match connection.ask(&Request::Ready { imported_bytes }, Deadline::after(ANSWER), on_event) {
        Ok(Reply::Done) => Ok(()),
        Ok(Reply::Refused(refusal)) => Err(ImportError::of_refusal(refusal)),
        Ok(_) => Err(ImportError::WrongReply { asked: "ready" }),
        Err(error) => Err(ImportError::of_wire(error)),
    }
}

/// How far an owner without a manifest is, if one is behind this socket.
pub(crate) fn phase_behind(socket: &Path) -> Option<Phase> {
    let deadline = Deadline::after(ANSWER);
    let connection = Connection::connect(socket, deadline).ok()?;
    match connection.ask(&Request::Status, deadline, |_| {}) {
        Ok(Reply::Status(status)) => Some(status.phase),
        _ => None,
    }
}

/// Descriptors are closed as soon as their range is mapped, so one batch at a time must fit.
fn check_fd_limit(ranges: usize) -> Result<(), ImportError> {
    let have = raise_fd_limit()
        .map_err(|source| ImportError::Wire(WireError::Io { action: "raise the limit of file descriptors", source }))?;
    let need = ranges.min(FDS_PER_MESSAGE_MAX) as u64 + FDS_BESIDE_BATCH;
    if need <= have { Ok(()) } else { Err(ImportError::FdLimit { need, have }) }
}

fn connect(path: &Path, manifest: &WeightsManifest, trust: &Trust) -> Result<Connection, ImportError> {
    let socket = PathBuf::from(&manifest.broker.path);
    let connection = Connection::connect(&socket, Deadline::after(ANSWER)).map_err(|error| match error {
        WireError::Io { source, .. } if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            ImportError::Stale { manifest: path.to_owned(), pid: manifest.owner.pid, socket: socket.clone() }
        }
        error => ImportError::of_wire(error),
    })?;
    let uid = connection.peer().map_err(ImportError::of_wire)?.uid;
    if trust.includes(uid) { Ok(connection) } else { Err(ImportError::OwnerUser { socket, uid }) }
}

struct Exchange {
    connection: Connection,
    draining: bool,
}

impl Exchange {
    fn ask(&mut self, request: &Request, asked: &'static str) -> Result<Reply, ImportError> {
        let draining = &mut self.draining;
        let on_event = |Event::Draining { .. }| *draining = true;
        match self.connection.ask(request, Deadline::after(ANSWER), on_event) {
            Ok(Reply::Refused(refusal)) => Err(ImportError::of_refusal(refusal)),
            Ok(Reply::Fds { .. }) => Err(ImportError::WrongReply { asked }),
            Ok(reply) => Ok(reply),
            Err(error) => Err(ImportError::of_wire(error)),
        }
    }

    fn hello(&mut self, manifest: &WeightsManifest, ask: &Ask<'_>) -> Result<(), ImportError> {
        let hello = Hello {
            proto_min: PROTO_MIN,
            proto_max: PROTO_MAX,
            worker_id: ask.worker_id.to_owned(),
            pid: std::process::id(),
            capabilities: ask.device.capabilities(),
            want: Want {
                model: Some(ask.model.to_owned()),
                instance: Some(manifest.instance.0),
                generation: Some(manifest.generation),
            },
        };
        match self.ask(&Request::Hello(hello), "hello")? {
            Reply::Welcome(welcome) if welcome.phase == Phase::Ready => Ok(()),
            Reply::Welcome(welcome) => Err(ImportError::NotReady { phase: welcome.phase }),
            _ => Err(ImportError::WrongReply { asked: "hello" }),
        }
    }

    fn check_ranges(&mut self, manifest: &WeightsManifest) -> Result<(), ImportError> {
        let Reply::Ranges { ranges, .. } = self.ask(&Request::Ranges, "ranges")? else {
            return Err(ImportError::WrongReply { asked: "ranges" });
        };
        for position in 0..ranges.len().max(manifest.ranges.len()) {
            let stated = manifest.ranges.get(position).map(|range| RangeSize { id: range.id, len: range.allocated.0 });
            let given = ranges.get(position).copied();
            if stated != given {
                let id = stated.or(given).map_or(0, |range| range.id);
                let (manifest, owner) = (stated.map(|range| range.len), given.map(|range| range.len));
                return Err(ImportError::RangeTable { id, manifest, owner });
            }
        }
        Ok(())
    }

    fn map_all(&mut self, manifest: &WeightsManifest, device: &ComputeDevice) -> Result<Vec<MappedRange>, ImportError> {
        let mut mappings = Vec::with_capacity(manifest.ranges.len());
        for batch in manifest.ranges.chunks(FDS_PER_MESSAGE_MAX) {
            let (first, count) = (mappings.len() as u32, batch.len() as u32);
            let request = Request::Fds { generation: manifest.generation, first, count };
            let draining = &mut self.draining;
            let on_event = |Event::Draining { .. }| *draining = true;
            let answer = self.connection.ask_with_fds(&request, Deadline::after(ANSWER), on_event);
            let fds = match answer.map_err(ImportError::of_wire)? {
                (reply, fds) if reply == (Reply::Fds { first, count }) => fds,
                (Reply::Refused(refusal), _) => return Err(ImportError::of_refusal(refusal)),
                _ => return Err(ImportError::WrongReply { asked: "fds" }),
            };
            if fds.len() != batch.len() {
                return Err(ImportError::Wire(WireError::FdCount { got: fds.len(), want: batch.len() }));
            }
            for (range, fd) in batch.iter().zip(fds) {
                let mapping = device.map(fd, range.allocated);
                mappings.push(mapping.map_err(|source| ImportError::Range { id: range.id, source })?);
            }
        }
        Ok(mappings)
    }
}
