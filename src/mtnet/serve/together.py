"""Work of many threads, done together by one of them."""

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


class Together(Generic[Job, Result]):
    """Runs jobs one batch after the other; those that wait meanwhile are the next batch.

    Args:
        run: The results of some jobs with the same key.
        key: Jobs with different keys are not run together.
        most: Jobs of a batch.
        ran: Called with the size of each batch.
    """

    def __init__(
        self,
        run: Callable[[list[Job]], list[Result]],
        key: Callable[[Job], Hashable],
        most: int,
        ran: Callable[[int], None] = lambda count: None,
    ):
        self._run, self._key, self._most, self._ran = run, key, most, ran
        self._waiting: deque[tuple[Job, Future[Result]]] = deque()
        self._queue, self._busy = threading.Lock(), threading.Lock()

    def __call__(self, job: Job) -> Result:
        """The result of one job, computed by this thread or by another."""
        future: Future[Result] = Future()
        with self._queue:
            self._waiting.append((job, future))
        with self._busy:  # whoever comes first works for those who wait
            while not future.done():
                self._run_batch()
        return future.result()

    def _run_batch(self) -> None:
        batch = self._next_batch()
        self._ran(len(batch))
        try:
            for (_, future), result in zip(
                batch, self._run([job for job, _ in batch]), strict=True
            ):
                future.set_result(result)
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise

    def _next_batch(self) -> list[tuple[Job, Future[Result]]]:
        with self._queue:
            key = self._key(self._waiting[0][0])
            same = [entry for entry in self._waiting if self._key(entry[0]) == key][: self._most]
            for entry in same:
                self._waiting.remove(entry)
        return same
