"""KDD Cup 99: records of network connections in the order in which they were written, a natural stream."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dbull.data.dataset import Samples
from dbull.data.files import DataFile, read_content
from dbull.errors import DataError

_SOURCE = "http://kdd.ics.uci.edu/databases/kddcup99/"
TRAIN_FILE = DataFile(
    "kddcup.data_10_percent.gz",
    2_144_903,
    (
        "8045aca0d84e70e622d1148d7df782496f6333bf6eb979a1b0837c42a9fd9561",
        "7bfaa8cef1350f72842018c32893e2fa4539d57efbb22f998eb74ecefc3da3b4",
    ),
    ("f8c8267ebcd9c0ed1fd7d6277fe5bfff8732e9b7db8e61b873542b2a534b6f9a",),
    (_SOURCE + "kddcup.data_10_percent.gz", "https://ndownloader.figshare.com/files/5976042"),
)
CORRECTED_FILE = DataFile(
    "corrected.gz",
    1_409_035,
    (
        "abd8165508378859b07e38537271f0ebf8a4d7319f643188cd7361e939a05c43",
        "74f0daef49b242badc09f2adbd457dea6a45b4f77177efbd11216d333651044b",
    ),
    ("547dfb9c0f0dc1d9944219ec79e851191faebaeb8acbfa1cd171c418397052a4",),
    (_SOURCE + "corrected.gz",),
)

# The 41 attributes in file order.
ATTRIBUTES = (
    *("duration", "protocol_type", "service", "flag", "src_bytes", "dst_bytes", "land", "wrong_fragment"),
    *("urgent", "hot", "num_failed_logins", "logged_in", "num_compromised", "root_shell", "su_attempted"),
    *("num_root", "num_file_creations", "num_shells", "num_access_files", "num_outbound_cmds"),
    *("is_host_login", "is_guest_login", "count", "srv_count", "serror_rate", "srv_serror_rate"),
    *("rerror_rate", "srv_rerror_rate", "same_srv_rate", "diff_srv_rate", "srv_diff_host_rate"),
    *("dst_host_count", "dst_host_srv_count", "dst_host_same_srv_rate", "dst_host_diff_srv_rate"),
    *("dst_host_same_src_port_rate", "dst_host_srv_diff_host_rate", "dst_host_serror_rate"),
    *("dst_host_srv_serror_rate", "dst_host_rerror_rate", "dst_host_srv_rerror_rate"),
)
# Every value that occurs in any part of the data, so that all parts get the same columns.
_CATEGORIES = {
    "protocol_type": ("icmp", "tcp", "udp"),
    "service": (
        *("IRC", "X11", "Z39_50", "aol", "auth", "bgp", "courier", "csnet_ns", "ctf", "daytime", "discard"),
        *(
            "domain",
            "domain_u",
            "echo",
            "eco_i",
            "ecr_i",
            "efs",
            "exec",
            "finger",
            "ftp",
            "ftp_data",
            "gopher",
        ),
        *("harvest", "hostnames", "http", "http_2784", "http_443", "http_8001", "icmp", "imap4", "iso_tsap"),
        *("klogin", "kshell", "ldap", "link", "login", "mtp", "name", "netbios_dgm", "netbios_ns"),
        *("netbios_ssn", "netstat", "nnsp", "nntp", "ntp_u", "other", "pm_dump", "pop_2", "pop_3", "printer"),
        *("private", "red_i", "remote_job", "rje", "shell", "smtp", "sql_net", "ssh", "sunrpc", "supdup"),
        *(
            "systat",
            "telnet",
            "tftp_u",
            "tim_i",
            "time",
            "urh_i",
            "urp_i",
            "uucp",
            "uucp_path",
            "vmnet",
            "whois",
        ),
    ),
    "flag": ("OTH", "REJ", "RSTO", "RSTOS0", "RSTR", "S0", "S1", "S2", "S3", "SF", "SH"),
}
# Normal traffic and all attacks of both parts.
LABELS = (
    *(
        "apache2",
        "back",
        "buffer_overflow",
        "ftp_write",
        "guess_passwd",
        "httptunnel",
        "imap",
        "ipsweep",
        "land",
    ),
    *(
        "loadmodule",
        "mailbomb",
        "mscan",
        "multihop",
        "named",
        "neptune",
        "nmap",
        "normal",
        "perl",
        "phf",
        "pod",
    ),
    *("portsweep", "processtable", "ps", "rootkit", "saint", "satan", "sendmail", "smurf", "snmpgetattack"),
    *("snmpguess", "spy", "sqlattack", "teardrop", "udpstorm", "warezclient", "warezmaster", "worm", "xlock"),
    *("xsnoop", "xterm"),
)
COLUMNS = tuple(
    column
    for attribute in ATTRIBUTES
    for column in (
        [f"{attribute}={value}" for value in _CATEGORIES[attribute]]
        if attribute in _CATEGORIES
        else [attribute]
    )
)


def parse_connections(content: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Parse comma-separated records with a label that ends in a dot.

    The three categorical attributes become one column per value; rates stay as they are, in
    [0, 1]; every other number n becomes log(1 + n), since counts of bytes run over nine decades.
    No statistic of the data is used, so the stream holds no trace of its future.

    Returns
    -------
    x : (N, 123) float32, columns as in `COLUMNS`
    y_true : (N,) int64, index into `LABELS`
    """
    lines = [line for line in content.splitlines() if line and not line.isspace()]
    if not lines:
        raise DataError(f"{where}: there are no records")
    # Two thirds of the records are copies of another: parse each different one once.
    number: dict[bytes, int] = {}
    rows = np.fromiter(
        (number.setdefault(line, len(number)) for line in lines), dtype=np.int64, count=len(lines)
    )
    table = _parse_table([line.decode("latin-1") for line in number], where)
    x = np.empty((len(number), len(COLUMNS)), dtype=np.float32)
    start = 0
    for attribute in ATTRIBUTES:
        values = table[attribute]
        if attribute in _CATEGORIES:
            codes = _codes(values, _CATEGORIES[attribute], attribute, where, rows)
            width = len(_CATEGORIES[attribute])
            x[:, start : start + width] = codes[:, None] == np.arange(width)
        else:
            width = 1
            x[:, start] = values if attribute.endswith("_rate") else np.log1p(values)
        start += width
    return x[rows], _codes(table["label"], LABELS, "label", where, rows)[rows]


def read_connections(paths: Mapping[str, Path]) -> Samples:
    """Read one part of the data, rows in file order."""
    (path,) = paths.values()
    x, y_true = parse_connections(read_content(path), str(path))
    return Samples(x, y_true, LABELS, (len(COLUMNS),))


def _parse_table(lines: list[str], where: str) -> np.ndarray:
    fields = [(name, "U16" if name in _CATEGORIES else "f8") for name in ATTRIBUTES]
    try:
        table = np.loadtxt(lines, delimiter=",", comments=None, dtype=[*fields, ("label", "U24")], ndmin=1)
    except ValueError as error:
        raise DataError(
            f"{where}: expected {len(ATTRIBUTES)} attributes and a label per line ({error})"
        ) from error
    table["label"] = np.char.rstrip(table["label"], ".")
    return table


def _codes(
    values: np.ndarray, known: tuple[str, ...], column: str, where: str, rows: np.ndarray
) -> np.ndarray:
    """Return the position of each value in the sorted tuple `known`."""
    names = np.array(known)
    codes = np.searchsorted(names, values).clip(max=len(names) - 1)
    wrong = np.flatnonzero(names[codes] != values)
    if wrong.size:
        row = int(np.flatnonzero(rows == wrong[0])[0])
        raise DataError(f"{where}: row {row + 1}, column '{column}': unknown value {str(values[wrong[0]])!r}")
    return codes.astype(np.int64)
