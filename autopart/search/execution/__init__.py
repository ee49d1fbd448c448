"""Where jobs run: in this process, in processes, on Ray; and how a wave is handed to workers.

executor    the interface, the registry, and `Serial`
processes   spawned processes;  ray   Ray actors
crew        the wave loop that both share;  job_queue   which jobs go to a worker at a time
"""

from autopart.search.execution.executor import (
    Executor,
    Learns,
    Lost,
    Serial,
    Session,
    Task,
    Worker,
    WorkerError,
    register_executor,
)

__all__ = ["Executor", "Learns", "Lost", "Serial", "Session", "Task", "Worker", "WorkerError", "register_executor"]
