//! The L2 adapter over local files against plain threads that do the same with the standard library.
//!
//! ```text
//! cargo bench --bench l2_files --all-features [-- <directory>]
//! ```
//!
//! With `--profile dev` and `CARGO_PROFILE_DEV_OPT_LEVEL=3` in the environment nothing but this package
//! is built anew, optimised as its dependencies are there.
//!
//! Files lie in the page cache, buffers exist and were touched before. A load is compared with four
//! threads that open, read and close the files of the batch; a store with four threads that write to
//! a temporary name and rename. Threads are started for each batch, as a caller with a batch would,
//! and a batch of one runs where it is called. Both take turns; printed are the median speeds, and of
//! the adapter's speed as a share of the threads' in the same round the median and the quartiles.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hfbucket::l2::{L2Adapter, L2Config, ObjectKey};

/// Of the peer; the adapter's `num_workers`.
const THREADS: usize = 4;
const ROUNDS: usize = 11;
const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

#[derive(Clone, Copy)]
struct Shape {
    files: usize,
    size: usize,
    batch: usize,
}

const SHAPES: [Shape; 4] = [
    Shape {
        files: 32,
        size: 4 * MIB,
        batch: 8,
    },
    Shape {
        files: 256,
        size: 64 * KIB,
        batch: 16,
    },
    Shape {
        files: 64,
        size: MIB,
        batch: 1,
    },
    Shape {
        files: 8,
        size: 32 * MIB,
        batch: 4,
    },
];

fn main() {
    let directory = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let parent = directory.map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(parent).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let path = directory.path().to_owned();
    // On a worker, where a server's tasks run.
    runtime.block_on(runtime.spawn(run(path))).unwrap();
}

async fn run(directory: PathBuf) {
    println!("         shape         batch   L2 MiB/s   threads MiB/s   ratio (quartiles)");
    for shape in SHAPES {
        let bench = Bench::new(shape, &directory).await;
        bench.stores().await;
        bench.loads().await;
        fs::remove_dir_all(&bench.directory).unwrap();
    }
}

struct Bench {
    shape: Shape,
    directory: PathBuf,
    adapter: L2Adapter,
    keys: Vec<ObjectKey>,
    /// Where the adapter puts the keys' objects; the peer uses the same names elsewhere.
    names: Vec<String>,
}

impl Bench {
    async fn new(shape: Shape, parent: &Path) -> Self {
        let directory = parent.join("kv");
        let url = url::Url::from_file_path(&directory).unwrap();
        let config =
            format!(r#"{{"type": "object_store", "url": "{url}", "num_workers": {THREADS}}}"#);
        let adapter = L2Adapter::open(L2Config::from_json(&config).unwrap())
            .await
            .unwrap();
        let keys: Vec<ObjectKey> = (0..shape.files)
            .map(|n| ObjectKey::new("org/model", 1, (n as u64).to_be_bytes()).unwrap())
            .collect();
        let name = |key| {
            let path = adapter.object_path(key).unwrap();
            path.filename().unwrap().to_owned()
        };
        fs::create_dir_all(directory.join("peer")).unwrap();
        Self {
            names: keys.iter().map(name).collect(),
            shape,
            directory,
            adapter,
            keys,
        }
    }

    fn content(&self) -> Vec<Bytes> {
        (0..self.shape.files)
            .map(|n| Bytes::from(vec![n as u8 ^ 0x5a; self.shape.size]))
            .collect()
    }

    async fn stores(&self) {
        let content = self.content();
        let (mut ours, mut peers) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let begun = Instant::now();
            for (keys, bytes) in self.batches(&self.keys).zip(self.batches(&content)) {
                let entries = keys.iter().cloned().zip(bytes.iter().cloned()).collect();
                let report = self.adapter.store(entries).await;
                assert!(report.is_ok(), "{report:?}");
            }
            let our = begun.elapsed();
            let begun = Instant::now();
            for (names, bytes) in self.batches(&self.names).zip(self.batches(&content)) {
                on_threads(names.iter().zip(bytes), |(name, bytes)| {
                    self.write(name, bytes);
                });
            }
            // The first round makes the files.
            if round > 0 {
                ours.push(our);
                peers.push(begun.elapsed());
            }
        }
        self.print("store", ours, peers);
    }

    async fn loads(&self) {
        let mut buffers = vec![vec![0xff; self.shape.size]; self.shape.files];
        let (mut ours, mut peers) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let begun = Instant::now();
            let batches = self.batches(&self.keys);
            for (keys, buffers) in batches.zip(buffers.chunks_mut(self.shape.batch)) {
                let loaded = self.adapter.load(keys, buffers).await;
                assert!(loaded.is_ok(), "{loaded:?}");
            }
            let our = begun.elapsed();
            self.check_and_clear(&mut buffers);
            let begun = Instant::now();
            let batches = self.batches(&self.names);
            for (names, buffers) in batches.zip(buffers.chunks_mut(self.shape.batch)) {
                on_threads(names.iter().zip(buffers), |(name, buffer)| {
                    self.read(name, buffer);
                });
            }
            let peer = begun.elapsed();
            self.check_and_clear(&mut buffers);
            if round > 0 {
                ours.push(our);
                peers.push(peer);
            }
        }
        self.print("load", ours, peers);
    }

    fn batches<'a, T>(&self, all: &'a [T]) -> std::slice::Chunks<'a, T> {
        all.chunks(self.shape.batch)
    }

    fn check_and_clear(&self, buffers: &mut [Vec<u8>]) {
        for (n, buffer) in buffers.iter_mut().enumerate() {
            assert!(buffer.iter().all(|byte| *byte == n as u8 ^ 0x5a));
            buffer.fill(0xff);
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.directory.join("peer").join(name);
        let staged = path.with_extension("tmp");
        let mut file = File::create_new(&staged).unwrap();
        file.write_all(bytes).unwrap();
        drop(file);
        fs::rename(staged, path).unwrap();
    }

    /// Reads what the adapter stored: the same files, so the same pages.
    fn read(&self, name: &str, buffer: &mut [u8]) {
        let file = File::open(self.directory.join(name)).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::FileExt::read_exact_at(&file, buffer, 0).unwrap();
        #[cfg(not(unix))]
        std::io::Read::read_exact(&mut &file, buffer).unwrap();
    }

    fn print(&self, operation: &str, mut ours: Vec<Duration>, mut peers: Vec<Duration>) {
        let Shape { files, size, batch } = self.shape;
        let mut ratios: Vec<f64> = (ours.iter().zip(&peers))
            .map(|(our, peer)| peer.as_secs_f64() / our.as_secs_f64())
            .collect();
        ratios.sort_by(f64::total_cmp);
        ours.sort();
        peers.sort();
        let bytes = (files * size) as f64 / MIB as f64;
        let (our, peer) = (ours[ROUNDS / 2], peers[ROUNDS / 2]);
        let shape = format!("{files} x {} KiB", size / KIB);
        println!(
            "{operation:>5} {shape:>15} {batch:>7} {:>10.0} {:>15.0} {:>7.2} ({:.2} to {:.2})",
            bytes / our.as_secs_f64(),
            bytes / peer.as_secs_f64(),
            ratios[ROUNDS / 2],
            ratios[ROUNDS / 4],
            ratios[ROUNDS * 3 / 4],
        );
    }
}

/// Does work on as many threads as the peer has, each thread taking every fourth piece.
fn on_threads<T: Send>(work: impl ExactSizeIterator<Item = T>, run: impl Fn(T) + Sync) {
    if work.len() == 1 {
        return work.for_each(run);
    }
    let mut shares: Vec<Vec<T>> = (0..THREADS).map(|_| Vec::new()).collect();
    for (n, piece) in work.enumerate() {
        shares[n % THREADS].push(piece);
    }
    std::thread::scope(|scope| {
        for share in shares {
            scope.spawn(|| share.into_iter().for_each(&run));
        }
    });
}
