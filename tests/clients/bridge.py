"""`toolgate stdio` in front of the gateway, for clients that start a program. The variable TOOLGATE is its path."""

import os

from mcp import StdioServerParameters


def bridge(gateway, *arguments):
    return StdioServerParameters(
        command=os.environ["TOOLGATE"], args=["stdio", "--registry", gateway, *arguments]
    )
