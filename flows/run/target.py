"""What a run makes of its profile, and what it is called.

A run is named after its profile and what overrides change of it (`multilingual-32k · temperature 5`), unless
a person has typed a name, which is kept. Its tags are the profile's name, the family of its tokenizer, and
those of its experiment.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from tokmill.flows.errors import RunError
from tokmill.flows.profile import Profile
from tokmill.flows.profile.fields import in_words
from tokmill.flows.run.composition import compose, compose_packing
from tokmill.flows.run.dag import Dag
from tokmill.flows.run.sources import Sources
from tokmill.flows.run.sweeping import Grid, compose_sweep, tried
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store
from tokmill.tasks.sweep.recommendation import SweepParams

_TAG = "tokmill"  # as on our deployments
_LONGEST = 120
_UNSAID = ("experiment", "mlflow", "openlineage")  # none of these changes what is made


@dataclass(frozen=True)
class Target:
    """What a run makes of a profile: everything, unless it says less, or something else."""

    # kinds of artifacts to make, with what they are made from; all if there are none
    until: Collection[str] = ()
    # a published mixture that is packed again; empty for the latest of the profile's name
    mixture: str | None = None
    grid: Grid | None = None  # what a sweep tries
    model: SweepParams = field(default_factory=SweepParams)  # the model that the sweep's tokenizers are for
    word: str = ""  # what is said of it in the run's name

    def compose(self, profile: Profile, store: Store, sources: Sources) -> Dag:
        """Return the DAG; see `composition.compose`, `compose_packing` and `sweeping.compose_sweep`."""
        if self.grid is not None:
            return compose_sweep(profile, self.grid, self.model, sources, store.place)
        if self.mixture is not None:
            mixture = _mixture(store, self.mixture, profile.name)
            return compose_packing(profile, mixture, sources, store.place)
        return compose(profile, sources, store.place, self.until)

    def named(self, profile: str | Profile) -> str:
        """Return the name of a run; of a profile that cannot be loaded only its own name is known."""
        more = [self.word, *([] if self.grid is None else tried(self.grid))]
        return name_of(profile, filter(None, more))


def name_of(profile: str | Profile, more: Iterable[str] = ()) -> str:
    """Return the name of a run: the profile's, what else is to be said, and what overrides change of it."""
    if isinstance(profile, str):
        return " · ".join([profile, *more])
    changed = [change for change in profile.changed if change.path[0] not in _UNSAID]
    name = " · ".join([profile.name, *more, *in_words(changed, Profile)])
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def tags_of(profile: Profile) -> set[str]:
    """Return the tags of a profile's runs in the Prefect UI."""
    training, experiment = profile.training(), profile.experiment
    own = {_TAG, profile.name, *experiment.tags} | (set() if training is None else {training.family})
    return own | ({f"experiment: {experiment.name}"} if experiment.name else set())


def _mixture(store: Store, reference: str, name: str) -> ArtifactRef:
    try:
        ref = store.resolve(reference or f"mixture/{name}@latest")
    except StoreError as error:
        raise RunError(f"repack: {error}") from error
    if ref.kind != "mixture":
        raise RunError(f"repack: {reference} is a {ref.kind}; mixtures are called mixture/NAME")
    return ref
