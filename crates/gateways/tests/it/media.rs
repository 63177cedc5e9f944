//! Files in a directory and in a bucket, the latter on a real server that speaks S3.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use recado_domain::media::{MediaFile, MediaPath, MediaStore, MediaStoreError, MediaType};
use recado_domain::shared::AccountId;
use recado_gateways::media::ObjectMedia;
use recado_simulators::raw::{RawServer, Reply};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;

/// A directory of its own, gone when dropped.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("recado-media-{:x}", unique()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Every file below, however it is called.
    fn files(&self) -> Vec<PathBuf> {
        fn walk(path: &Path, files: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(path).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, files)
                } else {
                    files.push(path)
                }
            }
        }
        let mut files = Vec::new();
        walk(&self.0, &mut files);
        files
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn unique() -> u128 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    now.as_nanos() << 32 | u128::from(std::process::id()) << 16 | u128::from(NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn path(kind: MediaType) -> MediaPath {
    MediaPath {
        account_id: AccountId(Uuid::from_u128(9)),
        id: Uuid::from_u128(unique()),
        kind,
    }
}

pub(crate) fn in_directory(directory: &Directory) -> Arc<dyn MediaStore> {
    let url = format!("file://{}", directory.path().display());
    Arc::new(ObjectMedia::open(Some(&url), []).unwrap())
}

/// A server that speaks S3 on a directory, with one bucket, and the store that uses it.
async fn in_bucket(directory: &Directory, secret: &str) -> ObjectMedia {
    behind(Arc::new(Door::open_for(Semaphore::MAX_PERMITS)), directory, secret).await
}

/// Where parts wait before they reach the bucket, and what it has done.
struct Door {
    knocked: Notify,
    open: Semaphore,
    done: Mutex<Vec<Method>>,
}

impl Door {
    fn open_for(parts: usize) -> Self {
        Self {
            knocked: Notify::new(),
            open: Semaphore::new(parts),
            done: Mutex::default(),
        }
    }

    fn has_done(&self, method: &Method) -> bool {
        self.done.lock().unwrap().contains(method)
    }
}

async fn behind(door: Arc<Door>, directory: &Directory, secret: &str) -> ObjectMedia {
    std::fs::create_dir_all(directory.path().join("media")).unwrap();
    let mut service = S3ServiceBuilder::new(s3s_fs::FileSystem::new(directory.path()).unwrap());
    service.set_auth(SimpleAuth::from_single("AKIAEXAMPLE", "right"));
    let service = service.build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (service, door) = (service.clone(), door.clone());
            tokio::spawn(async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let (service, door) = (service.clone(), door.clone());
                    async move {
                        let method = request.method().clone();
                        if method == Method::PUT {
                            door.knocked.notify_one();
                            door.open.acquire().await.unwrap().forget();
                        }
                        let answer = service.call(request.map(s3s::Body::from)).await;
                        door.done.lock().unwrap().push(method);
                        answer
                    }
                });
                let server = Builder::new(TokioExecutor::new());
                server.serve_connection(TokioIo::new(stream), service).await.ok();
            });
        }
    });
    bucket_at(&endpoint, secret)
}

fn bucket_at(endpoint: &str, secret: &str) -> ObjectMedia {
    let environment = [
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", secret),
        ("AWS_REGION", "us-east-1"),
        ("AWS_BUCKET", "another"),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    ObjectMedia::open(Some("s3://media/some/prefix/"), environment).unwrap()
}

pub(crate) async fn put(store: &dyn MediaStore, path: &MediaPath, content: &[u8]) {
    let mut write = store.begin(path).await.unwrap();
    let mut rest = Bytes::copy_from_slice(content);
    for size in [100_000, 4096, 4095, 1].into_iter().cycle() {
        if rest.is_empty() {
            break;
        }
        write.write(rest.split_to(size.min(rest.len()))).await.unwrap();
    }
    write.commit().await.unwrap();
}

async fn read(store: &dyn MediaStore, path: &MediaPath, from: u64) -> Vec<u8> {
    let mut pieces = store.read(path, from).await.unwrap().unwrap();
    let mut content = Vec::new();
    while let Some(piece) = pieces.next().await {
        content.extend_from_slice(&piece.unwrap());
    }
    content
}

/// Content in which every place is told from its neighbours.
pub(crate) fn content(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from((at * 7 + at / 251) % 251).unwrap())
        .collect()
}

async fn keeps_files(store: Arc<dyn MediaStore>, directory: &Directory) {
    // Smaller than a part, several parts, and just a part of a bucket.
    for length in [0, 1, 600_000, 5 * 1024 * 1024, 11_000_000] {
        let (path, content) = (path(MediaType::Pdf), content(length));
        assert_eq!(store.size(&path).await.unwrap(), None);
        assert!(store.read(&path, 0).await.unwrap().is_none());
        put(store.as_ref(), &path, &content).await;
        assert_eq!(store.size(&path).await.unwrap(), u64::try_from(length).ok());
        assert!(read(store.as_ref(), &path, 0).await == content, "{length}");
        if length > 0 {
            let from = length / 2 + 1;
            let rest = read(
                store.as_ref(),
                &path,
                u64::try_from(from).unwrap_or(0).min(u64::try_from(length - 1).unwrap()),
            )
            .await;
            assert!(rest == content[from.min(length - 1)..], "{length}");
        }
        let file = MediaFile::find(&store, path).await.unwrap().unwrap();
        assert_eq!(file.size, u64::try_from(length).unwrap());
        store.delete(&path).await.unwrap();
        store.delete(&path).await.unwrap();
        assert_eq!(store.size(&path).await.unwrap(), None);
    }
    let left: Vec<PathBuf> = directory.files().into_iter().filter(|file| is_content(file)).collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}

/// What the server of the bucket keeps for itself is no content.
fn is_content(file: &Path) -> bool {
    file.file_name().is_some_and(|name| {
        !name.to_string_lossy().starts_with(".bucket-") && !name.to_string_lossy().ends_with(".internal.json")
    })
}

/// A file that is dropped before it is whole: its parts go, soon after.
async fn leaves_nothing(store: Arc<dyn MediaStore>, directory: &Directory) {
    for length in [10, 600_000, 11_000_000] {
        let path = path(MediaType::Pdf);
        let mut write = store.begin(&path).await.unwrap();
        write.write(content(length).into()).await.unwrap();
        assert_eq!(store.size(&path).await.unwrap(), None, "nobody sees it");
        drop(write);
        let until = Instant::now() + Duration::from_secs(10);
        while directory.files().iter().any(|file| is_content(file)) {
            assert!(Instant::now() < until, "{:?}", directory.files());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(store.size(&path).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_directory_keeps_files() {
    let directory = Directory::new();
    keeps_files(in_directory(&directory), &directory).await;
}

#[tokio::test]
async fn of_a_dropped_file_nothing_is_left_in_a_directory() {
    let directory = Directory::new();
    leaves_nothing(in_directory(&directory), &directory).await;
}

#[tokio::test]
async fn a_bucket_keeps_files_under_its_prefix() {
    let directory = Directory::new();
    let store: Arc<dyn MediaStore> = Arc::new(in_bucket(&directory, "right").await);
    let path = path(MediaType::Png);
    put(store.as_ref(), &path, b"png").await;
    let file = directory.path().join("media/some/prefix").join(path.to_string());
    assert_eq!(std::fs::read(file).unwrap(), b"png");
    store.delete(&path).await.unwrap();
    keeps_files(store, &directory).await;
}

#[tokio::test]
async fn of_a_dropped_file_nothing_is_left_in_a_bucket() {
    let directory = Directory::new();
    leaves_nothing(Arc::new(in_bucket(&directory, "right").await), &directory).await;
}

/// Waits until the bucket was told to remove something, and nothing is left.
async fn has_gone(door: &Door, removal: Method, directory: &Directory) {
    let until = Instant::now() + Duration::from_secs(10);
    while !door.has_done(&removal) || directory.files().iter().any(|file| is_content(file)) {
        assert!(Instant::now() < until, "{:?}", directory.files());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_part_under_way_is_waited_for_before_the_parts_go() {
    for is_discarded in [false, true] {
        let (directory, door) = (Directory::new(), Arc::new(Door::open_for(0)));
        let store = behind(door.clone(), &directory, "right").await;
        let path = path(MediaType::Pdf);
        let mut write = store.begin(&path).await.unwrap();
        let mut writing = write.write(content(11_000_000).into());
        // Two parts and a bit: the second one waits for the first, which waits at the door.
        tokio::select! {
            _ = &mut writing => panic!("a part is still under way"),
            () = door.knocked.notified() => {}
        }
        drop(writing);
        if is_discarded {
            // Who discards it does not wait for its end, either.
            let discarded = tokio::time::timeout(Duration::from_millis(1), write.discard()).await;
            assert!(discarded.is_err(), "a part is still under way");
        } else {
            drop(write);
        }
        // Whatever was sent before these has been answered.
        for _ in 0..20 {
            assert_eq!(store.size(&path).await.unwrap(), None);
        }
        assert!(!door.has_done(&Method::DELETE), "the part would come after it");
        door.open.add_permits(1);
        has_gone(&door, Method::DELETE, &directory).await;
    }
}

#[tokio::test]
async fn a_file_that_appears_when_nobody_waits_for_it_goes() {
    let (directory, door) = (Directory::new(), Arc::new(Door::open_for(0)));
    let store = behind(door.clone(), &directory, "right").await;
    let path = path(MediaType::Pdf);
    let mut write = store.begin(&path).await.unwrap();
    write.write(content(10).into()).await.unwrap();
    let mut commit = write.commit();
    tokio::select! {
        _ = &mut commit => panic!("the file is still under way"),
        () = door.knocked.notified() => {}
    }
    drop(commit);
    door.open.add_permits(1);
    // Files are removed by a list of them, which is posted.
    has_gone(&door, Method::POST, &directory).await;
    assert!(door.has_done(&Method::PUT));
    assert_eq!(store.size(&path).await.unwrap(), None);
}

/// The files of an account, and of those around it in every order that a listing has.
async fn an_account_goes_alone(store: Arc<dyn MediaStore>, directory: &Directory) {
    let of = |account: u128, id: u128| MediaPath {
        account_id: AccountId(Uuid::from_u128(account)),
        id: Uuid::from_u128(id),
        kind: MediaType::Png,
    };
    for account in [8, 9, 10, 9 << 120] {
        for id in 0..5 {
            put(store.as_ref(), &of(account, id), b"png").await;
        }
    }
    // More than one page of a listing has, and one of several parts.
    let bulk = (5..1_100).map(|id| of(9, id));
    let puts = bulk.map(|path| {
        let store = store.clone();
        async move { put(store.as_ref(), &path, b"png").await }
    });
    futures_util::stream::iter(puts)
        .buffer_unordered(8)
        .collect::<Vec<_>>()
        .await;
    put(store.as_ref(), &of(9, 9_999), &content(11_000_000)).await;
    for _ in 0..2 {
        store.delete_account(of(9, 0).account_id).await.unwrap();
        let left = directory.files().into_iter().filter(|file| is_content(file));
        let left: Vec<String> = left.map(|file| file.display().to_string()).collect();
        assert_eq!(left.len(), 15, "{left:?}");
        let gone = format!("/{}/", of(9, 0).account_id);
        assert!(left.iter().all(|file| !file.contains(&gone)), "{left:?}");
    }
    for account in [8, 10, 9 << 120] {
        assert_eq!(store.size(&of(account, 4)).await.unwrap(), Some(3));
    }
    assert_eq!(store.size(&of(9, 4)).await.unwrap(), None);
}

#[tokio::test]
async fn of_a_removed_account_nothing_is_left_in_a_directory() {
    let directory = Directory::new();
    an_account_goes_alone(in_directory(&directory), &directory).await;
}

#[tokio::test]
async fn of_a_removed_account_nothing_is_left_in_a_bucket() {
    let directory = Directory::new();
    let store = Arc::new(in_bucket(&directory, "right").await);
    // What lies beside the prefix is somebody else's.
    let foreign = directory.path().join("media/some/prefix2");
    std::fs::create_dir_all(&foreign).unwrap();
    std::fs::write(foreign.join(".bucket-foreign"), b"x").unwrap();
    an_account_goes_alone(store, &directory).await;
    assert!(foreign.join(".bucket-foreign").exists());
}

#[tokio::test]
async fn a_wrong_secret_is_a_fault_of_the_store() {
    let directory = Directory::new();
    let store = in_bucket(&directory, "wrong").await;
    let path = path(MediaType::Png);
    let mut write = store.begin(&path).await.unwrap();
    write.write(Bytes::from_static(b"png")).await.unwrap();
    let failed = write.commit().await;
    assert!(matches!(failed, Err(MediaStoreError::Failed(_))), "{failed:?}");
    assert!(matches!(store.size(&path).await, Err(MediaStoreError::Failed(_))));
}

#[tokio::test]
async fn whoever_fetches_from_the_bucket_is_told_the_exact_type() {
    let server = RawServer::replying(vec![Reply::http("200 OK", "")]).unwrap();
    let store = bucket_at(server.origin(), "right");
    let path = path(MediaType::Webp);
    let mut write = store.begin(&path).await.unwrap();
    write.write(Bytes::from_static(b"webp")).await.unwrap();
    // What the server answers is no matter here.
    write.commit().await.ok();
    let head = server.heads().remove(0).to_lowercase();
    assert!(head.starts_with(&format!("put /media/some/prefix/{path} ")), "{head}");
    for header in [
        "content-type: image/webp",
        "content-disposition: inline",
        "cache-control: public, max-age=31536000, immutable",
    ] {
        assert!(head.contains(header), "{head}");
    }
}

#[tokio::test]
async fn a_store_that_is_down_or_unset_is_a_fault() {
    let path = path(MediaType::Png);
    let unset = ObjectMedia::open(None, []).unwrap();
    assert!(matches!(unset.size(&path).await, Err(MediaStoreError::NotConfigured)));
    assert!(matches!(
        unset.begin(&path).await.err(),
        Some(MediaStoreError::NotConfigured)
    ));
    let broken = RawServer::replying(vec![Reply::http(
        "403 Forbidden",
        "<Error><Code>AccessDenied</Code></Error>",
    )])
    .unwrap();
    let store = bucket_at(broken.origin(), "right");
    assert!(matches!(store.size(&path).await, Err(MediaStoreError::Failed(_))));
    // Once over: the next answer is a good one.
    let busy = Reply::http("503 Slow Down", "<Error><Code>SlowDown</Code></Error>");
    let etag = Reply::bytes("HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 0\r\n\r\n");
    let slow = RawServer::replying(vec![busy, etag]).unwrap();
    put(&bucket_at(slow.origin(), "right"), &path, b"png").await;
    assert_eq!(slow.heads().len(), 2);
}

#[tokio::test]
async fn an_address_that_cannot_be_used_is_told_without_its_value() {
    let plain = [
        ("AWS_ENDPOINT_URL", "http://minio.example"),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
    ];
    let plain = plain.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let store = ObjectMedia::open(Some("s3://media"), plain).unwrap();
    let refused = store.size(&path(MediaType::Png)).await;
    assert!(
        matches!(refused, Err(MediaStoreError::Failed(_))),
        "secrets are not sent in the clear: {refused:?}"
    );
    for url in [
        "s3:///prefix",
        "gs://x",
        "file://relative",
        "s3://b/a//b/../c",
        "file:///proc/none/media",
    ] {
        let error = ObjectMedia::open(Some(url), []).err().unwrap();
        assert!(!error.contains(url), "{error}");
    }
}
