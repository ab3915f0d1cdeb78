"""What was computed for the tasks that were used last."""

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from mtnet.serve.tasks import Task
from mtnet.userdata.new_tasks import Support

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """One value per task, of at most `most` tasks; it is gone when the task gets examples."""

    def __init__(self, most: int):
        self._most, self._lock = most, threading.Lock()
        self._values: OrderedDict[str, tuple[Support, Value]] = OrderedDict()

    def get(self, task: Task) -> Value | None:
        with self._lock:
            support, value = self._values.get(task.id, (None, None))
            if support is not task.support:
                return None
            self._values.move_to_end(task.id)
            return value

    def put(self, task: Task, value: Value) -> None:
        with self._lock:
            self._values[task.id] = task.support, value
            self._values.move_to_end(task.id)
            while len(self._values) > self._most:
                self._values.popitem(last=False)

    def forget(self, id: str) -> None:
        with self._lock:
            self._values.pop(id, None)
