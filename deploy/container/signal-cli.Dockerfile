# signal-cli as a daemon in a container next to the bot's. It is for x86-64, as its library is.
#
# The base is the official image `eclipse-temurin:25-jre-noble` (signal-cli 0.14 needs Java 25). To
# look up its current digest:
#   docker buildx imagetools inspect eclipse-temurin:25-jre-noble --format '{{.Manifest.Digest}}'
# Signal refuses versions of signal-cli that are some months old: raise the version and the checksum
# together, here and in `Dockerfile`, after checking the release's signature (deploy/CHECKLIST.md).
ARG BASE=eclipse-temurin:25-jre-noble@sha256:398f810215757dc1926390014272579fb0e57c41ef1c8aa4f64ae761613a168b
ARG SIGNAL_CLI_VERSION=0.14.9
ARG SIGNAL_CLI_SHA256=c32b87f587198cbd277c9d71228716ee6047ee2b63e8e88728e8280d9407d65a
ARG SIGNAL_CLI_SOURCE=https://github.com/AsamK/signal-cli/releases/download/v${SIGNAL_CLI_VERSION}/signal-cli-${SIGNAL_CLI_VERSION}.tar.gz

# hadolint ignore=DL3006
FROM ${BASE} AS unpacked
ARG SIGNAL_CLI_SHA256
ARG SIGNAL_CLI_SOURCE
# hadolint ignore=DL3020
ADD ${SIGNAL_CLI_SOURCE} /signal-cli.tar.gz
COPY deploy/container/signal-cli-alive /signal-cli-alive
ARG SOURCE_DATE_EPOCH=0
# The group may write the folder of attachments, so that the bot can delete them after use; only
# signal-cli may read the accounts.
RUN test "$(sha256sum < /signal-cli.tar.gz)" = "${SIGNAL_CLI_SHA256}  -" && \
    mkdir /image /image/opt /image/opt/signal-cli /image/run /image/var /image/var/lib && \
    tar -xzf /signal-cli.tar.gz -C /image/opt/signal-cli --strip-components=1 --no-same-owner && \
    install -m 0755 /signal-cli-alive /image/opt/signal-cli/bin/signal-cli-alive && \
    install -d -m 2750 -o 10002 -g 10001 /image/run/signal-cli && \
    install -d -m 0710 -o 10002 -g 10001 /image/var/lib/signal-cli && \
    install -d -m 2770 -o 10002 -g 10001 /image/var/lib/signal-cli/attachments && \
    find /image -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH}" {} +

# hadolint ignore=DL3006
FROM ${BASE}
COPY --from=unpacked /image /

USER 10002:10001
VOLUME ["/run/signal-cli", "/var/lib/signal-cli"]
STOPSIGNAL SIGTERM
# The check ends a signal-cli that hangs. The container ends with it, and the restart policy starts
# it again.
HEALTHCHECK --interval=12s --timeout=25s --start-period=60s --retries=1 CMD ["/opt/signal-cli/bin/signal-cli-alive", "/run/signal-cli/socket"]
# A socket that a killed signal-cli left behind would keep the next one from starting. The socket
# gives access to the account: only the group can use it, and only the bot is in the group.
ENTRYPOINT ["/bin/sh", "-c", "umask 0007; rm -f /run/signal-cli/socket; exec java --enable-native-access=ALL-UNNAMED -cp '/opt/signal-cli/lib/*' org.asamk.signal.Main --config /var/lib/signal-cli \"$@\"", "signal-cli"]
CMD ["daemon", "--socket", "/run/signal-cli/socket", "--receive-mode", "manual", "--no-receive-stdout"]

ARG SIGNAL_CLI_VERSION
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="signal-cli" \
      org.opencontainers.image.description="signal-cli as a daemon, for signal-tee-bot." \
      org.opencontainers.image.licenses="GPL-3.0-only" \
      org.opencontainers.image.version="${SIGNAL_CLI_VERSION}" \
      org.opencontainers.image.created="${CREATED}"
