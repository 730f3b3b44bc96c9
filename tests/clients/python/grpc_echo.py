"""Calls the echo server in every streaming kind; prints what came, or the status and its message.

    grpc_echo.py HOST:PORT UNARY_METHOD
"""

import os
import sys

import grpc

target, unary = sys.argv[1:]
with open(os.environ["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"], "rb") as roots:
    credentials = grpc.ssl_channel_credentials(roots.read())
with grpc.secure_channel(target, credentials) as channel:
    try:
        print(channel.unary_unary(unary)(b"one", timeout=60).decode())
        print([part.decode() for part in channel.unary_stream("/echo.Echo/ServerStream")(b"more", timeout=60)])
        print(channel.stream_unary("/echo.Echo/ClientStream")(iter([b"a", b"b", b"c"]), timeout=60).decode())
        print([part.decode() for part in channel.stream_stream("/echo.Echo/Both")(iter([b"x", b"y"]), timeout=60)])
        try:
            channel.unary_unary("/echo.Echo/Fails")(b"one", timeout=60)
        except grpc.RpcError as error:
            print(error.code().name, error.details())
    except grpc.RpcError as error:
        print(error.code().name, error.details())
        sys.exit(1)
