"""What users call: functions over a mesh, lowered, compiled and checked."""
