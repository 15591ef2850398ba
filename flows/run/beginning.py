"""What is known of a run when it begins, for its record: its profile, its machine, who started it."""

from tokmill.flows.profile import Profile
from tokmill.flows.profile.model import NOT_RECORDED
from tokmill.flows.run.called import named
from tokmill.flows.run.caller import is_a_command
from tokmill.flows.run.machine import Machine
from tokmill.tasks.store import Provenance
from tokmill.tasks.store.provenance import Machine as Here
from tokmill.tasks.store.provenance import installed_packages
from tokmill.tasks.store.runs import Begun, Override, StartedBy


def started_here() -> StartedBy:
    """Return who starts runs in this process: a person at a command line, or a program."""
    provenance = Provenance.collect()
    how = "command" if is_a_command() else "library"
    return StartedBy(how=how, user=provenance.user, detail=provenance.command)


def begun(
    profile: Profile,
    machine: Machine,
    provenance: Provenance,
    *,
    name: str | None = None,
    started_by: StartedBy | None = None,
    url: str | None = None,
) -> Begun:
    """Return what is recorded of a run at its start.

    Args:
        profile: the resolved profile.
        machine: the machine settings.
        provenance: of the code and the process.
        name: what the run is called; by default after its profile and overrides.
        started_by: who started it; by default this process's user.
        url: of its page.
    """
    return Begun(
        name=name or named(profile),
        profile=profile.name,
        parameters=profile.for_record(),
        overrides=[
            Override(field=change.field, before=change.before, after=change.after)
            for change in profile.changed
            if change.path[0] not in NOT_RECORDED
        ],
        experiment=profile.experiment.name or "",
        tags=profile.experiment.tags,
        notes=profile.experiment.notes,
        url=url,
        provenance=provenance,
        started_by=started_by or started_here(),
        machine=Here.here(machine.runner, machine.workers),
        packages=installed_packages(),
    )
