"""`mtnet page`: the page of `mtnet serve` as files, whose networks learn in the browser."""
