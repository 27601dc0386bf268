"""A Kafka consumer that only reads, in a process of its own: `python -m bench.plain_consumer ADDRESS TOPIC PARTITIONS`.

Prints how many messages and bytes it read, and its seconds of processor time and of the clock, as JSON. It imports
nothing but the client: the objects of other packages would cost Python's collector of cycles time.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from typing import Any

from confluent_kafka import Consumer, TopicPartition


def main(address: str, topic: str, partitions: int) -> None:
    cpu, began = time.process_time(), time.monotonic()
    settings: Any = {
        "bootstrap.servers": address,
        "group.id": uuid.uuid4().hex,
        "enable.partition.eof": True,
        "queued.max.messages.kbytes": 8192,
        "fetch.queue.backoff.ms": 2,  # with its default of a second the client idles most of the time
    }
    consumer: Any = Consumer(settings)
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    rows = size = done = 0
    while done < partitions:
        for message in consumer.consume(10_000, 0.05):
            if message.error() is not None:
                done += 1
            else:
                rows += 1
                size += len(message.value())
    consumer.close()
    print(json.dumps([rows, size, time.process_time() - cpu, time.monotonic() - began]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
