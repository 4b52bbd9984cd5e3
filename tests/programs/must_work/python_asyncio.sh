cat > a.py <<'END'
import asyncio


async def main():
    process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    print((await process.communicate(b"through cat"))[0])
    print(await asyncio.gather(*(asyncio.to_thread(pow, n, 2) for n in range(5))))
    server = await asyncio.start_unix_server(lambda reader, writer: (writer.write(b"unix"), writer.close()), "s")
    reader, writer = await asyncio.open_unix_connection("s")
    print(await reader.read())
    writer.close()
    server.close()


asyncio.run(main())
END
python3 a.py
