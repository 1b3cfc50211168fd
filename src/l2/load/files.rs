//! Reading opened files into the caller's buffers.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use futures::future::join_all;
use object_store::path::Path;
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::Broken;

/// Bytes that are worth a thread of their own. To start one and to wait for its end costs little on an
/// idle machine, and a time slice on a busy one: there, two threads for 1 MiB took twice as long as one.
const BYTES_PER_THREAD: usize = 2 * 1024 * 1024;

/// A file below that size which takes longer does not come from the page cache, and waiting for
/// several at once pays however small they are.
const SLOW: Duration = Duration::from_millis(1);

/// Bytes that one read on a blocking thread takes. Large enough that a thread's hand-over costs
/// little, small enough that the copy out of it stays in a CPU's cache.
const CHUNK: usize = 512 * 1024;

/// A file whose content from `start` fills the buffer.
pub(super) struct OpenFile<'a> {
    pub(super) position: usize,
    pub(super) path: Path,
    /// Shared with a blocking thread, where one reads.
    pub(super) file: Arc<File>,
    pub(super) start: u64,
    pub(super) buffer: &'a mut [u8],
}

impl OpenFile<'_> {
    fn read(&mut self) -> Result<(), Broken> {
        let read = read_at(&self.file, self.start, self.buffer).map_err(unreadable)?;
        complete(read, self.buffer.len())
    }

    /// Reads on blocking threads, which cannot borrow the caller's buffer: so in chunks through one
    /// that travels back and forth.
    pub(super) async fn read_elsewhere(&mut self) -> Result<(), Broken> {
        let wanted = self.buffer.len();
        let mut chunk = vec![0; wanted.min(CHUNK)];
        let mut filled = 0;
        for target in self.buffer.chunks_mut(CHUNK) {
            let (file, at) = (Arc::clone(&self.file), self.start + filled as u64);
            chunk.truncate(target.len());
            let read;
            (read, chunk) = tokio::task::spawn_blocking(move || {
                let read = read_at(&file, at, &mut chunk);
                (read, chunk)
            })
            .await
            .map_err(object_store::Error::from)?;
            let read = read.map_err(unreadable)?;
            filled += read;
            if read < target.len() {
                break;
            }
            target.copy_from_slice(&chunk);
        }
        complete(filled, wanted)
    }
}

fn unreadable(error: io::Error) -> Broken {
    Broken::Store(object_store::Error::Generic {
        store: "LocalFileSystem",
        source: Box::new(error),
    })
}

/// A file may be cut short after it was opened.
fn complete(read: usize, wanted: usize) -> Result<(), Broken> {
    match read {
        read if read == wanted => Ok(()),
        read => Err(Broken::Length(read as u64)),
    }
}

/// Reads until the buffer is full or the file ends.
fn read_at(file: &File, start: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match read_once(file, start + filled as u64, rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(unix)]
fn read_once(file: &File, at: u64, rest: &mut [u8]) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, rest, at)
}

/// Each file has one reader, so nobody else moves its cursor.
#[cfg(not(unix))]
fn read_once(mut file: &File, at: u64, rest: &mut [u8]) -> io::Result<usize> {
    use std::io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(at))?;
    file.read(rest)
}

/// Files that are read together.
pub(super) struct Window<'a> {
    downloads: &'a Semaphore,
    files: Vec<OpenFile<'a>>,
    bytes: usize,
    /// The first file's, and when it is read one for each thread.
    permits: Vec<SemaphorePermit<'a>>,
}

/// A file, and what became of its buffer.
pub(super) type Read<'a> = (OpenFile<'a>, Result<(), Broken>);

impl<'a> Window<'a> {
    pub(super) fn new(downloads: &'a Semaphore) -> Self {
        Self {
            downloads,
            files: Vec::new(),
            bytes: 0,
            permits: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Adds a file with the permit that it was opened with.
    pub(super) fn push(&mut self, file: OpenFile<'a>, permit: Option<SemaphorePermit<'a>>) {
        self.bytes += file.buffer.len();
        self.files.push(file);
        if self.permits.is_empty() {
            self.permits.extend(permit);
        }
    }

    /// Leaves an empty window behind.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.downloads))
    }

    /// Reads all files.
    pub(super) async fn read(mut self) -> Vec<Read<'a>> {
        let mut files = std::mem::take(&mut self.files);
        if let Some(read) = block_here(&mut files, |files| self.read_here(files)) {
            return read;
        }
        join_all(files.into_iter().map(|mut file| async move {
            let read = file.read_elsewhere().await;
            (file, read)
        }))
        .await
    }

    /// Takes permits that nobody waits for, up to so many in all.
    fn top_up(&mut self, threads: usize) {
        while self.permits.len() < threads
            && let Ok(permit) = self.downloads.try_acquire()
        {
            self.permits.push(permit);
        }
    }

    fn read_here(&mut self, files: Vec<OpenFile<'a>>) -> Vec<Read<'a>> {
        let work = Work::new(files);
        thread::scope(|scope| self.read_on_threads(scope, &work));
        work.done.into_inner()
    }

    /// This thread works too. It asks for help first if there is much to read, and later if what
    /// there is turns out to come slowly.
    fn read_on_threads<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        work: &'scope Work<'a>,
    ) {
        let threads = threads(self.bytes, work.left());
        let mut helped = self.call_helpers(scope, work, threads);
        while let Some(mut file) = work.next() {
            let begun = Instant::now();
            let read = file.read();
            work.finish(file, read);
            if !helped && begun.elapsed() > SLOW {
                helped = self.call_helpers(scope, work, work.left() + 1);
            }
        }
    }

    /// Starts threads until there are so many with this one, or as many as permits; true if there
    /// are any.
    fn call_helpers<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        work: &'scope Work<'a>,
        threads: usize,
    ) -> bool {
        self.top_up(threads);
        let helpers = threads.min(self.permits.len()).saturating_sub(1);
        for _ in 0..helpers {
            // If the system has no more threads, this one reads alone.
            let _ = thread::Builder::new().spawn_scoped(scope, || work.run());
        }
        helpers > 0
    }
}

/// Threads that are worth their start.
fn threads(bytes: usize, files: usize) -> usize {
    (bytes / BYTES_PER_THREAD).min(files)
}

/// Files that several threads read, each taking the next one.
struct Work<'a> {
    files: Mutex<std::vec::IntoIter<OpenFile<'a>>>,
    done: Mutex<Vec<Read<'a>>>,
}

impl<'a> Work<'a> {
    fn new(files: Vec<OpenFile<'a>>) -> Self {
        Self {
            done: Mutex::new(Vec::with_capacity(files.len())),
            files: Mutex::new(files.into_iter()),
        }
    }

    fn left(&self) -> usize {
        self.files.lock().len()
    }

    fn next(&self) -> Option<OpenFile<'a>> {
        self.files.lock().next()
    }

    fn finish(&self, file: OpenFile<'a>, read: Result<(), Broken>) {
        self.done.lock().push((file, read));
    }

    fn run(&self) {
        while let Some(mut file) = self.next() {
            let read = file.read();
            self.finish(file, read);
        }
    }
}

thread_local! {
    /// Tokio refused `block_in_place` on this thread: it runs a `LocalSet`, which stays with it.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread may block, as far as one can know.
pub(super) fn may_block_here() -> bool {
    let threads = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    matches!(threads, Ok(RuntimeFlavor::MultiThread)) && !REFUSED.get()
}

/// Does work that blocks, while the runtime's other tasks go on. `None`, with the files where they
/// were, if tokio does not allow it: it says so by a panic, and nothing tells a `LocalSet` beforehand.
fn block_here<F, T>(files: &mut Vec<F>, run: impl FnOnce(Vec<F>) -> T) -> Option<T> {
    let block = || tokio::task::block_in_place(|| run(std::mem::take(files)));
    match catch_unwind(AssertUnwindSafe(block)) {
        Ok(done) => Some(done),
        Err(_) if !files.is_empty() => {
            REFUSED.set(true);
            None
        }
        Err(panic) => resume_unwind(panic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Files {
        directory: tempfile::TempDir,
        downloads: Semaphore,
    }

    impl Files {
        fn new(permits: usize) -> Self {
            Self {
                directory: tempfile::tempdir().unwrap(),
                downloads: Semaphore::new(permits),
            }
        }

        fn open<'a>(&self, position: usize, start: u64, buffer: &'a mut [u8]) -> OpenFile<'a> {
            let path = self.directory.path().join(position.to_string());
            std::fs::write(&path, content(position, start as usize + buffer.len())).unwrap();
            OpenFile {
                position,
                path: Path::from(position.to_string()),
                file: Arc::new(File::open(&path).unwrap()),
                start,
                buffer,
            }
        }

        /// A window as full as it gets with buffers of a size, each opened with a permit.
        fn window<'a>(&'a self, buffers: &'a mut [Vec<u8>]) -> Window<'a> {
            let mut window = Window::new(&self.downloads);
            for (position, buffer) in buffers.iter_mut().enumerate() {
                let permit = self.downloads.try_acquire().ok();
                window.push(self.open(position, 0, buffer), permit);
            }
            window
        }
    }

    fn content(seed: usize, size: usize) -> Vec<u8> {
        (0..size).map(|n| ((n + seed) % 251) as u8).collect()
    }

    fn cut(file: &OpenFile<'_>, files: &Files, size: u64) {
        let path = files.directory.path().join(file.position.to_string());
        let writer = File::options().write(true).open(path).unwrap();
        writer.set_len(size).unwrap();
    }

    #[tokio::test]
    async fn a_file_is_read_from_its_start_on_either_thread() {
        let files = Files::new(1);
        for size in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 17] {
            let expected = &content(7, size + 5)[5..];
            let (mut here, mut elsewhere) = (vec![0; size], vec![0; size]);
            files.open(7, 5, &mut here).read().unwrap();
            assert!(here == expected);
            let mut file = files.open(7, 5, &mut elsewhere);
            file.read_elsewhere().await.unwrap();
            assert!(elsewhere == expected);
        }
    }

    #[tokio::test]
    async fn a_file_cut_short_tells_what_it_had() {
        let files = Files::new(1);
        for left in [0, 1, CHUNK, CHUNK + 1, 2 * CHUNK + 16] {
            let mut buffer = vec![0; 2 * CHUNK + 17];
            let mut file = files.open(0, 0, &mut buffer);
            cut(&file, &files, left as u64);
            let is_cut = |read| matches!(read, Err(Broken::Length(n)) if n == left as u64);
            assert!(is_cut(file.read()));
            assert!(is_cut(file.read_elsewhere().await));
        }
    }

    #[test]
    fn a_window_keeps_one_permit_until_it_takes_what_is_free() {
        let files = Files::new(4);
        let mut buffers = vec![Vec::new(); 3];
        let mut window = files.window(&mut buffers);
        assert_eq!((window.len(), window.permits.len()), (3, 1));
        window.top_up(3);
        assert_eq!(files.downloads.available_permits(), 1);
        window.top_up(100);
        assert_eq!(window.permits.len(), 4);
        let taken = window.take();
        assert_eq!((taken.len(), window.len(), window.permits.len()), (3, 0, 0));
        drop(taken);
        assert_eq!(files.downloads.available_permits(), 4);
    }

    #[test]
    fn threads_are_for_much_to_read() {
        assert_eq!(threads(0, 5), 0);
        assert_eq!(threads(BYTES_PER_THREAD * 2 - 1, 32), 1);
        assert_eq!(threads(BYTES_PER_THREAD * 2, 32), 2);
        assert_eq!(threads(BYTES_PER_THREAD * 100, 4), 4);
    }

    async fn read_and_check(permits: usize, size: usize) {
        let files = Files::new(permits);
        let mut buffers = vec![vec![0; size]; 6];
        let window = files.window(&mut buffers);
        cut(&window.files[3], &files, 2);
        let mut read = window.read().await;
        read.sort_by_key(|(file, _)| file.position);
        assert_eq!(read.len(), 6);
        for (position, (file, outcome)) in read.iter().enumerate() {
            assert_eq!(file.position, position);
            if position == 3 {
                assert!(matches!(outcome, Err(Broken::Length(2))), "{outcome:?}");
            } else {
                assert!(outcome.is_ok() && *file.buffer == content(position, size));
            }
        }
        assert_eq!(files.downloads.available_permits(), permits);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn windows_are_read_by_any_number_of_threads() {
        assert!(may_block_here());
        for permits in [1, 2, 4, 64] {
            for size in [100, BYTES_PER_THREAD + 1] {
                read_and_check(permits, size).await;
            }
        }
    }

    #[test]
    fn where_tokio_allows_no_blocking_other_threads_read() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            assert!(may_block_here());
            read_and_check(2, 100).await;
            assert!(!may_block_here());
            read_and_check(2, 100).await;
        });
    }

    #[tokio::test]
    async fn one_thread_may_not_block() {
        assert!(!may_block_here());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_panic_of_the_work_itself_is_passed_on() {
        let work = || block_here(&mut vec![1], |_| panic!("own"));
        let panic = catch_unwind(AssertUnwindSafe(work)).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"own"));
        assert!(may_block_here());
    }
}
