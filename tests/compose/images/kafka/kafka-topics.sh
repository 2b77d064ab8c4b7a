#!/bin/bash
exec java -cp '/opt/kafka/libs/*' org.apache.kafka.tools.TopicCommand "$@"
