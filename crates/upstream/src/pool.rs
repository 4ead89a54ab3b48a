//! The further links of a server besides its first: one for each era and set of capabilities that callers have, since a
//! link declares one set, and one for each session or caller where the server is stateful. They are opened when first
//! needed, in `further`.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use super::branch::Branch;
use super::link::Link;
use super::profile::Profile;
use model::Capabilities;

/// The most shared processes of one server, the first included, for different sets of capabilities.
const MAX_SHARED: usize = 4;
/// The most sets of capabilities of one server whose links are no processes.
const MAX_SETS: usize = 16;
/// The most profiles of one server, those with a link of another one included.
const MOST_PROFILES: usize = 512;

#[derive(Default)]
pub struct LinkPool {
    /// The branches by the profiles of the callers that they serve. A branch may serve several.
    branches: Mutex<HashMap<Profile, Arc<Branch>>>,
    /// The profiles whose lists somebody asked for since they have their branch.
    read: Mutex<HashSet<Profile>>,
}

/// The branch for a profile.
pub struct Found {
    pub branch: Arc<Branch>,
    /// Whether it serves this profile only because there are too many sets of capabilities.
    pub is_nearest: bool,
    /// The branch that was given up for it.
    pub replaced: Option<Arc<Branch>>,
    /// The profiles that have no branch any more.
    pub forgotten: Vec<Profile>,
}

impl Found {
    fn known(branch: Arc<Branch>) -> Self {
        Self { branch, is_nearest: false, replaced: None, forgotten: Vec::new() }
    }
}

impl LinkPool {
    fn lock(&self) -> MutexGuard<'_, HashMap<Profile, Arc<Branch>>> {
        self.branches.lock().expect("no code panics while it holds the branches")
    }

    fn read(&self) -> MutexGuard<'_, HashSet<Profile>> {
        self.read.lock().expect("no code panics while it holds the profiles")
    }

    /// Notes that the lists for a profile are known to whoever asked for them.
    pub fn set_read(&self, profile: &Profile) {
        self.read().insert(profile.clone());
    }

    pub fn is_read(&self, profile: &Profile) -> bool {
        self.read().contains(profile)
    }

    /// The branch that serves a profile, if there is one already.
    pub fn get(&self, profile: &Profile) -> Option<Arc<Branch>> {
        self.lock().get(profile).cloned()
    }

    /// The branch for a profile, created if needed; `None` when its callers must use the first link. `is_process` says
    /// whether its link is a process, `first` whether the first link serves callers of this era.
    pub fn branch(&self, profile: &Profile, is_process: bool, first: bool) -> Option<Found> {
        let mut branches = self.lock();
        if let Some(branch) = branches.get(profile) {
            return Some(Found::known(branch.clone()));
        }
        let new = Branch::new(profile.clone());
        // Callers without capabilities, and owners, always have a link.
        if profile.owner.is_some() || profile.capabilities.is_empty() || !is_full(&branches, &new, is_process)
        {
            branches.insert(profile.clone(), new.clone());
            return Some(Found::known(new));
        }
        let may_replace = !is_process || new.uses_first_link();
        let idle = shared(&branches).filter(|branch| may_replace && branch.may_go());
        if let Some(idle) = idle.min_by_key(|branch| branch.last_used()) {
            let forgotten = self.take_out(&mut branches, &idle);
            branches.insert(profile.clone(), new.clone());
            return Some(Found { branch: new, is_nearest: false, replaced: Some(idle), forgotten });
        }
        let branch = match nearest(&branches, profile) {
            Some(nearest) => nearest,
            None if first => return None,
            None => {
                let empty = Profile { capabilities: Capabilities::NONE, ..profile.clone() };
                branches.entry(empty.clone()).or_insert_with(|| Branch::new(empty)).clone()
            }
        };
        // Clients can declare any number of different capabilities.
        let mut forgotten = Vec::new();
        if branches.len() >= MOST_PROFILES {
            let borrows = |profile: &Profile, branch: &Branch| *profile != branch.profile;
            forgotten.extend(branches.extract_if(|it, branch| borrows(it, branch)).map(|(it, _)| it));
            self.read().retain(|profile| !forgotten.contains(profile));
        }
        branches.insert(profile.clone(), branch.clone());
        Some(Found { branch, is_nearest: true, replaced: None, forgotten })
    }

    /// Removes a branch; returns the profiles that it served.
    pub fn remove(&self, branch: &Arc<Branch>) -> Vec<Profile> {
        self.take_out(&mut self.lock(), branch)
    }

    fn take_out(&self, branches: &mut HashMap<Profile, Arc<Branch>>, branch: &Arc<Branch>) -> Vec<Profile> {
        let served = branches.extract_if(|_, serving| Arc::ptr_eq(serving, branch));
        let served: Vec<_> = served.map(|(profile, _)| profile).collect();
        self.read().retain(|profile| !served.contains(profile));
        served
    }

    /// Makes a branch forget a link that turned out to be unusable; returns the branch.
    pub fn forget(&self, link: &Arc<Link>) -> Option<Arc<Branch>> {
        self.branches().into_iter().find(|branch| branch.forget(link))
    }

    /// All branches, each once.
    pub fn branches(&self) -> Vec<Arc<Branch>> {
        let branches = self.lock();
        distinct(&branches).collect()
    }

    pub fn links(&self) -> Vec<Arc<Link>> {
        self.branches().iter().filter_map(|branch| branch.link()).collect()
    }

    /// The profiles of callers that a branch serves.
    pub fn served_by(&self, branch: &Arc<Branch>) -> Vec<Profile> {
        let branches = self.lock();
        let served = branches.iter().filter(|(_, serving)| Arc::ptr_eq(serving, branch));
        served.map(|(profile, _)| profile.clone()).collect()
    }

    pub fn has_link(&self, is_meant: impl Fn(&Profile) -> bool) -> bool {
        let branches = self.lock();
        branches.iter().any(|(profile, branch)| is_meant(profile) && branch.link().is_some())
    }

    /// When the link that has been idle longest was last used; `None` if all are in use.
    pub fn idle_since(&self) -> Option<Instant> {
        self.branches().iter().filter_map(|branch| branch.unused_since()).min()
    }

    /// Whether a link is in use only because its lists are read for the first time.
    pub fn is_settling(&self) -> bool {
        self.branches().iter().any(|branch| branch.is_settling())
    }

    /// Takes out the link that has been idle longest. Its branch stays, and opens another one when it is needed.
    pub fn take_idle(&self) -> Option<Arc<Link>> {
        // Under the lock: nobody may find neither an idle process nor one that is ending.
        let branches = self.lock();
        let idle = distinct(&branches).filter_map(|branch| Some((branch.unused_since()?, branch)));
        let (_, branch) = idle.min_by_key(|(since, _)| *since)?;
        branch.take_link()
    }

    /// Takes out branches; returns their links, to be closed.
    pub fn take(&self, is_meant: impl Fn(&Branch) -> bool) -> Vec<Arc<Link>> {
        let mut branches = self.lock();
        let taken: Vec<_> = distinct(&branches).filter(|branch| is_meant(branch)).collect();
        let profiles = branches.extract_if(|_, branch| is_meant(branch)).map(|(profile, _)| profile);
        let mut read = self.read();
        for profile in profiles {
            read.remove(&profile);
        }
        taken.iter().filter_map(|branch| branch.give_up()).collect()
    }
}

/// The branches, each once although it may serve several profiles.
fn distinct(branches: &HashMap<Profile, Arc<Branch>>) -> impl Iterator<Item = Arc<Branch>> {
    let own = branches.iter().filter(|(profile, branch)| **profile == branch.profile);
    own.map(|(_, branch)| branch.clone())
}

/// The branches that have no owner.
fn shared(branches: &HashMap<Profile, Arc<Branch>>) -> impl Iterator<Item = Arc<Branch>> {
    distinct(branches).filter(|branch| branch.profile.owner.is_none())
}

/// Whether there are too many shared branches for a new one.
fn is_full(branches: &HashMap<Profile, Arc<Branch>>, new: &Branch, is_process: bool) -> bool {
    match is_process && !new.uses_first_link() {
        true => shared(branches).filter(|branch| !branch.uses_first_link()).count() + 1 >= MAX_SHARED,
        false => shared(branches).count() >= MAX_SETS,
    }
}

/// The branch that declares most of what a caller has, and nothing else.
fn nearest(branches: &HashMap<Profile, Arc<Branch>>, profile: &Profile) -> Option<Arc<Branch>> {
    let fitting = shared(branches).filter(|branch| {
        branch.profile.era == profile.era && branch.profile.capabilities.is_subset_of(&profile.capabilities)
    });
    fitting.max_by_key(|branch| branch.profile.capabilities.len())
}
