
# What our commits say of themselves, oldest first; what lies below a rebuilt log does not count.
history = sorted(deltalake.DeltaTable(TABLE).history(), key=lambda commit: commit["version"])
said = [commit.get("userMetadata") or "" for commit in history]
stamps = [json.loads(text) for text in said if text.startswith('{"cutover":1,')]
