//! The further links of a server besides its first: one for each era and set of capabilities that callers have, since a
//! link declares one set, and one for each session or caller where the server is stateful. They are opened when first
//! needed, in `further`.

use std::collections::HashMap;
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

/// The branches by the profiles of the callers that they serve. A branch may serve several.
#[derive(Default)]
pub struct LinkPool(Mutex<HashMap<Profile, Arc<Branch>>>);

/// The branch for a profile.
pub struct Found {
    pub branch: Arc<Branch>,
    /// Whether it serves this profile only because there are too many sets of capabilities.
    pub is_nearest: bool,
    /// The branch that was given up for it, with the profiles that it served.
    pub replaced: Option<(Arc<Branch>, Vec<Profile>)>,
}

impl Found {
    fn known(branch: Arc<Branch>) -> Self {
        Self { branch, is_nearest: false, replaced: None }
    }
}

impl LinkPool {
    fn lock(&self) -> MutexGuard<'_, HashMap<Profile, Arc<Branch>>> {
        self.0.lock().expect("no code panics while it holds the branches")
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
        let mut replaced = None;
        if profile.owner.is_none() {
            let is_process = is_process && !new.uses_first_link();
            let shared = distinct(&branches).filter(|branch| branch.profile.owner.is_none());
            let shared: Vec<_> = shared.filter(|branch| !is_process || !branch.uses_first_link()).collect();
            let is_full = if is_process { shared.len() + 1 >= MAX_SHARED } else { shared.len() >= MAX_SETS };
            // Callers without capabilities always have a link.
            if is_full && is_process && !profile.capabilities.is_empty() {
                let nearest = nearest(&shared, profile);
                drop(shared);
                return match nearest {
                    Some(branch) => {
                        branches.insert(profile.clone(), branch.clone());
                        Some(Found { branch, is_nearest: true, replaced: None })
                    }
                    None if first => None,
                    None => {
                        let empty = Profile { capabilities: Capabilities::NONE, ..profile.clone() };
                        let branch =
                            branches.entry(empty.clone()).or_insert_with(|| Branch::new(empty)).clone();
                        branches.insert(profile.clone(), branch.clone());
                        Some(Found { branch, is_nearest: true, replaced: None })
                    }
                };
            }
            if is_full && !is_process {
                let idle = shared.iter().filter(|branch| !branch.is_subscribed());
                let idle = idle.min_by_key(|branch| branch.last_used()).cloned();
                drop(shared);
                replaced = idle.map(|idle| (idle.clone(), remove(&mut branches, &idle)));
            }
        }
        branches.insert(profile.clone(), new.clone());
        Some(Found { branch: new, is_nearest: false, replaced })
    }

    /// Removes a branch; returns the profiles that it served.
    pub fn remove(&self, branch: &Arc<Branch>) -> Vec<Profile> {
        remove(&mut self.lock(), branch)
    }

    /// Makes a branch forget a link that turned out to be unusable; returns the branch.
    pub fn forget(&self, link: &Arc<Link>) -> Option<Arc<Branch>> {
        self.branches().into_iter().find(|branch| branch.forget(link))
    }

    /// All branches, each once.
    pub fn branches(&self) -> Vec<Arc<Branch>> {
        let branches = self.lock();
        let all = distinct(&branches).collect();
        all
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
        branches.retain(|_, branch| !is_meant(branch));
        taken.iter().filter_map(|branch| branch.take_link()).collect()
    }
}

fn remove(branches: &mut HashMap<Profile, Arc<Branch>>, branch: &Arc<Branch>) -> Vec<Profile> {
    branches.extract_if(|_, serving| Arc::ptr_eq(serving, branch)).map(|(profile, _)| profile).collect()
}

/// The branches, each once although it may serve several profiles.
fn distinct(branches: &HashMap<Profile, Arc<Branch>>) -> impl Iterator<Item = Arc<Branch>> {
    let own = branches.iter().filter(|(profile, branch)| **profile == branch.profile);
    own.map(|(_, branch)| branch.clone())
}

/// The branch that declares most of what a caller has, and nothing else.
fn nearest(shared: &[Arc<Branch>], profile: &Profile) -> Option<Arc<Branch>> {
    let fitting = shared.iter().filter(|branch| {
        branch.profile.era == profile.era && branch.profile.capabilities.is_subset_of(&profile.capabilities)
    });
    fitting.max_by_key(|branch| branch.profile.capabilities.len()).cloned()
}
