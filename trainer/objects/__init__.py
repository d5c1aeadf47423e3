"""Reading and uploading files that lie elsewhere: in object stores, on peer nodes and in folders."""
