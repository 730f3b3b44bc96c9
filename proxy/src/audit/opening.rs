//! Opening a log: its place, what was left in it, and the threads that keep it.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::{Duration, Instant};

use policy::record::LogFact;
use tokio::sync::broadcast;

use super::company::Company;
use super::keeper::Sleep;
use super::shared::{Owed, Shared, State};
use super::tally::Tally;
use super::writer::Log;
use super::{Audit, AuditError, BROADCAST_LINES, FILE, Settings, place, recovery, shelf};

impl Audit {
    /// Opens `directory/audit.jsonl`, making both if need be, and continues its chain. A last
    /// line that was cut short is set aside as `*.torn` and an event says so.
    ///
    /// # Errors
    /// [`AuditError`]
    pub fn open(directory: &Path) -> Result<Self, AuditError> {
        Self::open_with(directory, Settings::default())
    }

    /// The same, with settings of one's own.
    ///
    /// # Errors
    /// [`AuditError`]
    pub fn open_with(directory: &Path, settings: Settings) -> Result<Self, AuditError> {
        let path = directory.join(FILE);
        let failed = |problem: std::io::Error| AuditError::Open {
            path: path.display().to_string(),
            problem: problem.to_string(),
        };
        place::make_directory(directory).map_err(failed)?;
        let lock = place::lock(directory)
            .map_err(failed)?
            .ok_or_else(|| AuditError::Busy {
                path: path.display().to_string(),
            })?;
        let file = place::open_file(directory).map_err(failed)?;
        // Of what is only in a file whose name is lost, nothing would be left.
        (settings.sync_directory)(&lock).map_err(failed)?;
        let found = recovery::recover(&file, &path)?;
        let names = Arc::clone(&settings.sync_directory);
        let log = Log::new(path.clone(), lock, names, file, found.at);
        let (lines, _) = broadcast::channel(BROADCAST_LINES);
        let state = State {
            checked: (log.seq(), Instant::now()),
            log,
            waiters: Company::new(),
            failed: None,
            owed: Owed::default(),
            tally: Tally::default(),
            synced_in: Duration::ZERO,
            syncs: 0,
            checkpoint: found.closing.map(Arc::from),
            stop: false,
            syncing: false,
            losses: 0,
            sleep: Sleep::Awake,
            expected: 0,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            turn: Condvar::new(),
            lines,
            path: path.clone(),
            settings,
            source: RwLock::new(None),
        });
        if let Some(workers) = &shared.settings.workers {
            workers.tell(&shared);
        }
        let worker = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || worker.run())
            .map_err(|problem| AuditError::Open {
                path: shared.path.display().to_string(),
                problem: problem.to_string(),
            })?;
        let (open, closing) = std::sync::mpsc::channel();
        let kept = Arc::downgrade(&shared);
        let shelf = std::thread::Builder::new()
            .name("audit-shelf".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || shelf::keep(&kept, &closing))
            .map_err(failed)?;
        let audit = Self {
            shared,
            thread: Some(thread),
            shelf: Some((open, shelf)),
        };
        if let Some(torn) = found.torn {
            let what = format!(
                "the last line of the log was incomplete and was set aside as {}",
                torn.display()
            );
            let file = torn.file_name().unwrap_or_default().to_string_lossy();
            audit.note(&what, LogFact::Torn { file: file.into() });
        }
        if !found.clean {
            audit.note(
                "the log was not closed by the gate that wrote it",
                LogFact::Opened { clean: false },
            );
        }
        Ok(audit)
    }
}
