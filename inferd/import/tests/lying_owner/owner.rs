//! A broker that answers as a test tells it to.

use ds4_gpu::HostRange;
use ds4_manifest::{
    Broker, Device, Digest, InstanceId, Model, Owner, Place, Published, Range, State, Tensor, Totals, WeightsManifest,
    publish,
};
use ds4_resident::{ContentIdentity, TensorIdentity, leaf_root};
use ds4_units::{Bytes, TensorType};
use ds4_wire::{Connection, Deadline, PROTO_MAX, PROTO_MIN, Phase, RangeSize, Reply, Request, Welcome, WireError};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const RANGES: usize = 3;
pub(crate) const RANGE_LEN: u64 = 65536;
const INSTANCE: [u8; 16] = [9; 16];

/// What the owner does with a request.
pub(crate) enum Answer {
    Say(Reply),
    SayWithFds(Reply, Vec<OwnedFd>),
    HangUp,
}

/// A published manifest and a thread that serves one connection.
pub(crate) struct FakeOwner {
    dir: TempDir,
    _published: Published,
}

impl FakeOwner {
    pub(crate) fn start(lie: impl Fn(&Request) -> Option<Answer> + Send + 'static) -> FakeOwner {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let published = publish(&dir.path().join("m.json"), &manifest(&socket.to_string_lossy()), 0o600).unwrap();
        std::thread::spawn(move || {
            let connection = Connection::new(listener.accept().unwrap().0).unwrap();
            // The end of the connection ends the owner, however it comes.
            serve(&connection, &lie).ok();
        });
        FakeOwner { dir, _published: published }
    }

    pub(crate) fn manifest(&self) -> PathBuf {
        self.dir.path().join("m.json")
    }
}

fn serve(connection: &Connection, lie: &dyn Fn(&Request) -> Option<Answer>) -> Result<(), WireError> {
    let soon = || Deadline::after(Duration::from_secs(60));
    loop {
        let request = connection.receive::<Request>(soon())?;
        match lie(&request).unwrap_or_else(|| truth(&request)) {
            Answer::Say(reply) => connection.send(&reply, soon())?,
            Answer::SayWithFds(reply, fds) => {
                let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
                connection.send_with_fds(&reply, &fds, soon())?;
            }
            Answer::HangUp => return Ok(()),
        }
    }
}

fn truth(request: &Request) -> Answer {
    match request {
        Request::Hello(_) => {
            let phase = Phase::Ready;
            Answer::Say(Reply::Welcome(Welcome { proto: PROTO_MAX, instance: INSTANCE, generation: 1, phase }))
        }
        Request::Ranges => Answer::Say(table()),
        Request::Fds { first, count, .. } => {
            Answer::SayWithFds(Reply::Fds { first: *first, count: *count }, (0..RANGES).map(sealed).collect())
        }
        _ => Answer::Say(Reply::Done),
    }
}

pub(crate) fn table() -> Reply {
    let ranges = (0..RANGES as u32).map(|id| RangeSize { id, len: RANGE_LEN });
    Reply::Ranges { generation: 1, ranges: ranges.collect() }
}

/// Range number `at`, as it should be: it begins with 64 bytes of its number.
pub(crate) fn sealed(at: usize) -> OwnedFd {
    sealed_of(at, RANGE_LEN)
}

pub(crate) fn sealed_of(at: usize, len: u64) -> OwnedFd {
    let range = HostRange::create("lying-owner", Bytes(len)).unwrap();
    range.write_at(0, &[at as u8; 64]).unwrap();
    range.seal().unwrap().export().unwrap()
}

/// Memory that anyone could still change.
pub(crate) fn unsealed() -> OwnedFd {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let fd = memfd_create("lying-owner", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    let file = std::fs::File::from(fd);
    file.set_len(RANGE_LEN).unwrap();
    file.into()
}

/// A file on disk, whose truncation would be a SIGBUS.
pub(crate) fn plain_file() -> OwnedFd {
    let file = tempfile::tempfile().unwrap();
    file.set_len(RANGE_LEN).unwrap();
    file.into()
}

fn manifest(socket: &str) -> WeightsManifest {
    let tensors: Vec<Tensor> = (0..RANGES)
        .map(|at| Tensor {
            name: format!("t{at}"),
            kind: TensorType::F32,
            dims: vec![16],
            leaf_root: leaf_root(Bytes(64), &[Digest::of(&[at as u8; 64])]),
            place: Some(Place { range: at as u32, offset: Bytes(0), len: Bytes(64) }),
        })
        .collect();
    let identity = ContentIdentity::of(
        tensors
            .iter()
            .map(|tensor| TensorIdentity {
                name: tensor.name.clone(),
                kind: tensor.kind,
                dims: tensor.dims.clone(),
                leaf_root: tensor.leaf_root,
            })
            .collect(),
    );
    let model = Model {
        id: "base".into(),
        arch: "toy".into(),
        files: vec![],
        logical_size: Bytes(1),
        shard_align: Bytes::kib(64),
        content_root: identity.root.into(),
        tensors,
    };
    let ranges = (0..RANGES as u32).map(|id| Range { id, len: Bytes(64), allocated: Bytes(RANGE_LEN) });
    let mut manifest = WeightsManifest {
        schema: WeightsManifest::SCHEMA.into(),
        instance: InstanceId(INSTANCE),
        generation: 1,
        state: State::Ready,
        created_at: 0,
        owner: Owner { pid: 1, start_time_ticks: 1, boot_id: "b".into(), uid: 0, exe_version: "0".into() },
        device: Device { backend: "memfd".into(), name: "host".into(), uuid: None, granularity: Bytes::kib(64) },
        broker: Broker { path: socket.into(), proto_min: PROTO_MIN, proto_max: PROTO_MAX },
        models: vec![model],
        artifacts: vec![],
        ranges: ranges.collect(),
        needs: vec![],
        totals: Totals::default(),
        plan_flags: vec![],
    };
    manifest.totals = manifest.count();
    manifest
}
