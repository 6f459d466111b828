//! One caller at a time, with a limit on the wait: for functions that several threads crash.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::error::NvmlError;

/// How long a caller waits for its turn; the calls behind one take tens of microseconds.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// A lock that a caller gives up on, so that one that hangs in the driver does not stop the rest.
#[derive(Debug)]
pub(crate) struct Turn {
    state: Mutex<State>,
    free: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Taken,
    /// Somebody waited in vain; nobody else waits until it is free again.
    Stuck,
}

/// Ends the turn when the call has returned or panicked.
struct Taken<'a>(&'a Turn);

/// Turns in use, by the address of a function that is called in turn.
static TURNS: Mutex<Vec<(usize, Weak<Turn>)>> = Mutex::new(Vec::new());

impl Turn {
    fn new() -> Self {
        Self { state: Mutex::new(State::Free), free: Condvar::new() }
    }

    /// The turn for a function: a library that is opened twice is loaded once, so both have one.
    pub(crate) fn of(address: usize) -> Arc<Self> {
        let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|(_, turn)| turn.strong_count() > 0);
        let known = turns.iter().find(|(other, _)| *other == address);
        if let Some(turn) = known.and_then(|(_, turn)| turn.upgrade()) {
            return turn;
        }
        let turn = Arc::new(Self::new());
        turns.push((address, Arc::downgrade(&turn)));
        turn
    }

    /// Makes the call when it is our turn, or gives `NvmlError::Timeout`.
    pub(crate) fn take<T>(&self, call: impl FnOnce() -> T) -> Result<T, NvmlError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.free.wait_timeout_while(state, WAIT_MAX, |s| *s == State::Taken);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *state != State::Free {
            *state = State::Stuck;
            return Err(NvmlError::Timeout);
        }
        *state = State::Taken;
        drop(state);
        let _taken = Taken(self);
        Ok(call())
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Free;
        self.0.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn a_caller_that_hangs_does_not_stop_the_rest() {
        let turn = &Turn::new();
        assert_eq!(turn.take(|| 1), Ok(1));
        let (entered, has_entered) = sync_channel(0);
        let (release, released) = sync_channel::<()>(0);
        std::thread::scope(|scope| {
            let hung = scope.spawn(move || {
                turn.take(|| {
                    entered.send(()).unwrap();
                    released.recv().unwrap();
                })
            });
            has_entered.recv().unwrap();
            assert_eq!(turn.take(|| 2), Err(NvmlError::Timeout));
            assert_eq!(*turn.state.lock().unwrap(), State::Stuck);
            assert_eq!(turn.take(|| 3), Err(NvmlError::Timeout));
            release.send(()).unwrap();
            assert_eq!(hung.join().unwrap(), Ok(()));
        });
        assert_eq!(turn.take(|| 4), Ok(4));
    }

    #[test]
    fn one_function_has_one_turn() {
        let (one, same, other) = (Turn::of(1), Turn::of(1), Turn::of(2));
        assert!(Arc::ptr_eq(&one, &same));
        assert!(!Arc::ptr_eq(&one, &other));
    }
}
